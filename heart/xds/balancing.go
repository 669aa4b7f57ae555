package xds

import (
	"fmt"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	leastrequest "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirst "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	roundrobin "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocality "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
)

// balancing is the client's counterpart of a balancer. The older field
// lb_policy would not do: with LEAST_REQUEST gRPC drops the weights of
// localities.
func balancing(b heart.Balancer, perRequest bool) (*cluster.LoadBalancingPolicy, error) {
	switch {
	case b == heart.LeastRequest:
		return withinLocality(&leastrequest.LeastRequest{ChoiceCount: wrapperspb.UInt32(2)})
	case b == heart.PerConnection && !perRequest:
		return policies(&pickfirst.PickFirst{ShuffleAddressList: true})
	default:
		return withinLocality(&roundrobin.RoundRobin{})
	}
}

// withinLocality draws a locality by weight, then picks in it.
func withinLocality(picking proto.Message) (*cluster.LoadBalancingPolicy, error) {
	inner, err := policies(picking)
	if err != nil {
		return nil, err
	}
	return policies(&wrrlocality.WrrLocality{EndpointPickingPolicy: inner})
}

// policies lists one policy.
func policies(policy proto.Message) (*cluster.LoadBalancingPolicy, error) {
	config, err := anypb.New(policy)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", policy, err)
	}
	return &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &core.TypedExtensionConfig{Name: string(policy.ProtoReflect().Descriptor().FullName()), TypedConfig: config},
	}}}, nil
}
