package xds

import (
	"errors"
	"fmt"
	"net/netip"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
)

// endpoints places the replicas of a route. A locality is a callee group and
// its weight the group's share; a per-connection route puts all replicas into
// one locality, because it draws among replicas, not among groups. The errors
// of all shares are joined.
func (b builder) endpoints(r heart.Route, groups map[string]heart.Group) (*endpoint.ClusterLoadAssignment, error) {
	shares, err := b.shares(r, groups)
	if err != nil {
		return nil, err
	}
	load := &endpoint.ClusterLoadAssignment{ClusterName: r.To}
	if r.Balancer != heart.PerConnection {
		for _, s := range shares {
			load.Endpoints = append(load.Endpoints, locality(s.group.Name, s.weight, b.members(s)...))
		}
		return load, nil
	}
	var pool []*endpoint.LbEndpoint
	for _, s := range byReplica(shares) {
		e := b.members(s)[0]
		if b.perRequest {
			load.Endpoints = append(load.Endpoints, locality(s.group.Name, s.weight, e))
			continue
		}
		e.LoadBalancingWeight = wrapperspb.UInt32(s.weight)
		pool = append(pool, e)
	}
	if !b.perRequest {
		load.Endpoints = append(load.Endpoints, locality(r.To, 1, pool...))
	}
	return load, nil
}

// share is a group and its positive weight.
type share struct {
	group  heart.Group
	weight uint32
}

// shares resolves those of positive weight and checks what clients would
// refuse: an address that is no address, or one address twice.
func (b builder) shares(r heart.Route, groups map[string]heart.Group) ([]share, error) {
	var shares []share
	var errs []error
	owner := map[netip.AddrPort]string{}
	for _, s := range r.Shares {
		if s.Weight == 0 {
			continue
		}
		shares = append(shares, share{groups[s.To], s.Weight})
		for _, name := range groups[s.To].Replicas {
			at, known := b.addresses[name]
			switch before, taken := owner[at]; {
			case !known:
				errs = append(errs, fmt.Errorf("replica %q has no address", name))
			case !at.IsValid() || at.Port() == 0 || at.Addr().IsUnspecified():
				errs = append(errs, fmt.Errorf("replica %q: address %q, expected an IP address and a port", name, at))
			case taken && before == name:
				errs = append(errs, fmt.Errorf("replica %q is in two shares", name))
			case taken:
				errs = append(errs, fmt.Errorf("replicas %q and %q have the same address %s", before, name, at))
			default:
				owner[at] = name
			}
		}
	}
	return shares, errors.Join(errs...)
}

// byReplica divides the shares among single replicas, in small integers. The
// sum stays below 2^32, which is what clients accept.
func byReplica(shares []share) []share {
	var total uint64
	for _, s := range shares {
		total += uint64(s.weight)
	}
	var single []share
	var divisor uint64
	for _, s := range shares {
		n := uint64(len(s.group.Replicas))
		weight := max(1, uint64(s.weight)<<31/total/n)
		for _, name := range s.group.Replicas {
			single = append(single, share{heart.Group{Name: name, Replicas: []string{name}}, uint32(weight)})
		}
		divisor = gcd(weight, divisor)
	}
	for i := range single {
		single[i].weight /= uint32(divisor)
	}
	return single
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (b builder) members(s share) []*endpoint.LbEndpoint {
	members := make([]*endpoint.LbEndpoint, 0, len(s.group.Replicas))
	for _, name := range s.group.Replicas {
		at := b.addresses[name]
		members = append(members, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
				Address: at.Addr().Unmap().String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(at.Port())},
			}}},
		}}})
	}
	return members
}

func locality(name string, weight uint32, members ...*endpoint.LbEndpoint) *endpoint.LocalityLbEndpoints {
	return &endpoint.LocalityLbEndpoints{
		Locality: &core.Locality{SubZone: name}, LoadBalancingWeight: wrapperspb.UInt32(weight), LbEndpoints: members,
	}
}
