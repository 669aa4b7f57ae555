package xds

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"heartbed/heart"
)

func TestBootstrap(t *testing.T) {
	raw, err := Bootstrap("10.0.0.1:18000", `d"1`)
	require.NoError(t, err)
	var got struct {
		Servers []struct {
			URI      string   `json:"server_uri"`
			Features []string `json:"server_features"`
		} `json:"xds_servers"`
		Node struct{ ID string }
	}
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Equal(t, `d"1`, got.Node.ID)
	require.Equal(t, "10.0.0.1:18000", got.Servers[0].URI)
	require.Contains(t, got.Servers[0].Features, "ignore_resource_deletion")
	require.Equal(t, "xds:///a%20b", Target("a b"))
}

// addressBook gives n replicas r0, r1, ... an address each.
func addressBook(n int) map[string]netip.AddrPort {
	book := map[string]netip.AddrPort{}
	for i := range n {
		book[fmt.Sprint("r", i)] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
	}
	return book
}

// Whatever the weights: no address twice, no weight of zero, sums that clients
// accept, and each replica's part is its group's share over the group's size.
func TestEndpointsCarryTheShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := heart.Route{From: "d", To: "e", Balancer: rapid.SampledFrom([]heart.Balancer{
			heart.Weighted, heart.RoundRobin, heart.LeastRequest, heart.PerConnection,
		}).Draw(t, "balancer")}
		groups := map[string]heart.Group{}
		left, used, total := uint64(math.MaxUint32), 0, 0.0
		for i := range rapid.IntRange(1, 6).Draw(t, "groups") {
			g := heart.Group{Name: fmt.Sprint("g", i), Component: "e"}
			for range rapid.IntRange(1, 5).Draw(t, "size") {
				g.Replicas = append(g.Replicas, fmt.Sprint("r", used))
				used++
			}
			most := rapid.SampledFrom([]uint64{3, 10000, left}).Draw(t, "most")
			w := rapid.Uint64Range(0, min(most, left)).Draw(t, "weight")
			left, total = left-w, total+float64(w)
			groups[g.Name] = g
			r.Shares = append(r.Shares, heart.Share{To: g.Name, Weight: uint32(w)})
		}
		if total == 0 {
			r.Shares[0].Weight, total = 1, 1
		}
		b := builder{addresses: addressBook(used), perRequest: rapid.Bool().Draw(t, "new connections")}
		load, err := b.endpoints(r, groups)
		require.NoError(t, err)

		got := parts(t, load)
		perReplica := r.Balancer == heart.PerConnection
		for _, s := range r.Shares {
			for _, name := range groups[s.To].Replicas {
				want := float64(s.Weight) / total / float64(len(groups[s.To].Replicas))
				tolerance := 1e-9
				if perReplica {
					tolerance = 1e-8 // rounded to 2^-31, which small shares are kept above
				}
				require.InDelta(t, want, got[b.addresses[name].Addr().String()], tolerance, name)
			}
		}
		if perReplica && !b.perRequest {
			require.Len(t, load.GetEndpoints(), 1)
		}
	})
}

// parts is each address's part of the requests as a client works it out:
// locality by weight, then endpoint by weight.
func parts(t require.TestingT, load *endpoint.ClusterLoadAssignment) map[string]float64 {
	sum := uint64(0)
	for _, l := range load.GetEndpoints() {
		require.NotNil(t, l.GetLocality())
		require.Positive(t, l.GetLoadBalancingWeight().GetValue())
		sum += uint64(l.GetLoadBalancingWeight().GetValue())
	}
	require.LessOrEqual(t, sum, uint64(math.MaxUint32))
	got := map[string]float64{}
	for _, l := range load.GetEndpoints() {
		inside := uint64(0)
		weight := func(e *endpoint.LbEndpoint) uint64 {
			if e.GetLoadBalancingWeight() == nil {
				return 1
			}
			return uint64(e.GetLoadBalancingWeight().GetValue())
		}
		for _, e := range l.GetLbEndpoints() {
			require.Positive(t, weight(e))
			inside += weight(e)
		}
		require.LessOrEqual(t, inside, uint64(math.MaxUint32))
		for _, e := range l.GetLbEndpoints() {
			at := e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()
			require.NotContains(t, got, at, "an address twice")
			got[at] = float64(l.GetLoadBalancingWeight().GetValue()) / float64(sum) * float64(weight(e)) / float64(inside)
		}
	}
	return got
}

// Equal shares become equal small weights.
func TestByReplicaUsesSmallIntegers(t *testing.T) {
	all := []share{{heart.Group{Replicas: []string{"a", "b", "c"}}, 10000}}
	for _, s := range byReplica(all) {
		require.Equal(t, uint32(1), s.weight)
	}
	uneven := []share{{heart.Group{Replicas: []string{"a", "b"}}, 3}, {heart.Group{Replicas: []string{"c"}}, 1}}
	var weights []uint32
	for _, s := range byReplica(uneven) {
		weights = append(weights, s.weight)
	}
	require.Equal(t, []uint32{3, 3, 2}, weights)
}

// A version names a content: the order of routes does not matter, a weight or
// an address does, and only to the callers whose routes have it.
func TestVersions(t *testing.T) {
	groups := []heart.Group{
		{Name: "d", Component: "d", Replicas: []string{"d1"}}, {Name: "c", Component: "c", Replicas: []string{"c1"}},
		{Name: "e", Component: "e", Replicas: []string{"r0"}}, {Name: "f", Component: "f", Replicas: []string{"r1", "r2"}},
	}
	to := func(from, component string, weight uint32) heart.Route {
		return heart.Route{From: from, To: component, Balancer: heart.Weighted, Shares: []heart.Share{{To: component, Weight: weight}}}
	}
	version := func(b builder, routes ...heart.Route) map[string]string {
		snapshots, err := b.snapshots(heart.RoutingTable{Groups: groups, Routes: routes})
		require.NoError(t, err)
		versions := map[string]string{}
		for name, s := range snapshots {
			versions[name] = s.version
			require.NoError(t, s.resources.Consistent())
			require.True(t, slices.IsSorted(s.callees))
		}
		return versions
	}
	b := builder{addresses: addressBook(3)}
	base := version(b, to("d", "e", 1), to("d", "f", 1), to("c", "f", 1))
	require.Equal(t, base, version(b, to("c", "f", 1), to("d", "f", 1), to("d", "e", 1)))

	weight := version(b, to("d", "e", 2), to("d", "f", 1), to("c", "f", 1))
	require.NotEqual(t, base["d1"], weight["d1"])
	require.Equal(t, base["c1"], weight["c1"])

	moved := builder{addresses: addressBook(3)}
	moved.addresses["r2"] = netip.MustParseAddrPort("[::1]:9")
	after := version(moved, to("d", "e", 1), to("d", "f", 1), to("c", "f", 1))
	require.NotEqual(t, base["d1"], after["d1"])
	require.NotEqual(t, base["c1"], after["c1"])
}

// The circuit breaker is far above what a testbed has outstanding.
func TestCircuitBreaker(t *testing.T) {
	b := builder{addresses: addressBook(1)}
	snapshots, err := b.snapshots(heart.RoutingTable{
		Groups: []heart.Group{{Name: "d", Replicas: []string{"d1"}}, {Name: "e", Replicas: []string{"r0"}}},
		Routes: []heart.Route{{From: "d", To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e", Weight: 1}}}},
	})
	require.NoError(t, err)
	c := snapshots["d1"].resources.GetResources(resource.ClusterType)["e"].(*cluster.Cluster)
	require.EqualValues(t, 1<<20, c.GetCircuitBreakers().GetThresholds()[0].GetMaxRequests().GetValue())
}
