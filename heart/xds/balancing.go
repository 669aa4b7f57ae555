package xds

import (
	"fmt"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	leastrequest "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirst "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	wrrlocality "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
)

// balance sets how clients pick, in the terms that most of them know. Round
// robin over weighted localities is the older field lb_policy, understood by
// every gRPC and by Envoy (which wants the weights switched on, and whose
// wrr_locality takes one child only). Least request is not: with lb_policy
// LEAST_REQUEST gRPC drops the weights of localities (gRFC A48, A52).
func balance(c *cluster.Cluster, b heart.Balancer, perRequest bool) (err error) {
	switch {
	case b == heart.LeastRequest:
		c.LoadBalancingPolicy, err = leastRequestByLocality(2)
	case b == heart.PerConnection && !perRequest:
		c.LoadBalancingPolicy, err = policies(&pickfirst.PickFirst{ShuffleAddressList: true})
	default:
		c.LbPolicy = cluster.Cluster_ROUND_ROBIN
		c.CommonLbConfig = &cluster.Cluster_CommonLbConfig{
			LocalityConfigSpecifier: &cluster.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
				LocalityWeightedLbConfig: &cluster.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
			},
		}
	}
	return err
}

// leastRequestByLocality draws a locality by weight, then the given number of
// its replicas, and takes the one with the fewest outstanding requests.
func leastRequestByLocality(draws uint32) (*cluster.LoadBalancingPolicy, error) {
	inner, err := policies(&leastrequest.LeastRequest{ChoiceCount: wrapperspb.UInt32(draws)})
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
