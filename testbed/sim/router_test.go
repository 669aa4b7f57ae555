package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// callers is a with na replicas calling b with nb, on one node without delay.
func callers(na, nb int, balancer heart.Balancer) (testbed.Plan, heart.RoutingTable) {
	p := solo(1, workloads.Server{Threads: 1})
	p.App.Components[0].Steps = []workloads.Step{{Call: []string{"b"}}}
	p.App.Components = append(p.App.Components, workloads.Component{Name: "b", Replicas: nb, Steps: []workloads.Step{{CPUMs: 1}}})
	p.Replicas = nil
	a, b := heart.Group{Name: "a", Component: "a"}, heart.Group{Name: "b", Component: "b"}
	for i := range na {
		a.Replicas = append(a.Replicas, "a"+string(rune('1'+i)))
		p.Replicas = append(p.Replicas, heart.Replica{Name: a.Replicas[i], Component: "a", Node: "n1"})
	}
	for i := range nb {
		b.Replicas = append(b.Replicas, "b"+string(rune('1'+i)))
		p.Replicas = append(p.Replicas, heart.Replica{Name: b.Replicas[i], Component: "b", Node: "n1"})
	}
	return p, heart.RoutingTable{
		Groups: []heart.Group{a, b},
		Routes: []heart.Route{{From: "a", To: "b", Balancer: balancer, Shares: []heart.Share{{To: "b", Weight: 1}}}},
	}
}

// Envoy draws two with replacement: of two hosts the busier one is taken only
// when it is drawn twice, a quarter of the time (envoyproxy/envoy#11004).
func TestLeastRequestTakesTheBusierOfTwoAQuarterOfTheTime(t *testing.T) {
	p, table := callers(1, 2, heart.LeastRequest)
	w := build(t, p)
	require.NoError(t, w.route(table))
	w.router.active[0] = make([]int32, 3)
	w.router.active[0][1] = 1000 // b1 is busy and stays so
	busier := 0
	const draws = 20_000
	for range draws {
		pick := w.router.pick(0, 1)
		if pick.replica == 1 {
			busier++
		}
		w.router.release(0, pick)
	}
	require.InDelta(t, 0.25, float64(busier)/draws, 0.01)
	require.EqualValues(t, 1000, w.router.active[0][1], "what a pick counts its release gives back")
}

// Counters are local to the caller: what one caller sees as busy is idle to
// the other.
func TestLeastRequestCountsOnlyItsOwn(t *testing.T) {
	p, table := callers(2, 2, heart.LeastRequest)
	w := build(t, p)
	require.NoError(t, w.route(table))
	for range 100 {
		w.router.pick(0, 1)
	}
	require.Nil(t, w.router.active[1])
}

// Under per-connection balancing a pool of one connection stays with its
// replica whatever the table says later (kubernetes/kubernetes#38456,
// istio/istio#13908); without a pool each request draws.
func TestPerConnectionPinsItsReplica(t *testing.T) {
	for _, c := range []struct {
		connections int
		most        int
	}{{1, 1}, {0, 4}} {
		p, table := callers(1, 4, heart.PerConnection)
		p.Network.Connections = c.connections
		w := build(t, p)
		require.NoError(t, w.route(table))
		seen := map[int32]bool{}
		for i := range 200 {
			if i == 100 {
				require.NoError(t, w.route(table))
			}
			pick := w.router.pick(0, 1)
			seen[pick.replica] = true
			w.router.release(0, pick)
		}
		require.Len(t, seen, c.most)
	}
}

func TestWeightedFollowsTheWeights(t *testing.T) {
	p, table := callers(1, 3, heart.Weighted)
	table.Groups = append(table.Groups[:1],
		heart.Group{Name: "b@1", Component: "b", Replicas: []string{"b1"}},
		heart.Group{Name: "b@2", Component: "b", Replicas: []string{"b2", "b3"}})
	table.Routes[0].Shares = []heart.Share{{To: "b@1", Weight: 2}, {To: "b@2", Weight: 6}}
	w := build(t, p)
	require.NoError(t, w.route(table))
	count := map[string]int{}
	const draws = 40_000
	for range draws {
		count[w.replicas[w.router.pick(0, 1).replica].Name]++
	}
	require.InDelta(t, 0.25, float64(count["b1"])/draws, 0.01)
	require.InDelta(t, count["b2"], count["b3"], 1, "replicas of a group take turns")
}

// Without a table the run fails and says why; nothing is guessed.
func TestNoRouteIsAnError(t *testing.T) {
	p, _ := callers(1, 2, heart.Weighted)
	w := build(t, p)
	_, err := w.run(t.Context(), nil)
	require.ErrorIs(t, err, errNoRoute)
	require.ErrorContains(t, err, `replica "a1"`)
}

// A message takes half the round trip of the caller's link each way, plus a
// traversal of both sidecars; the client has none. A table of one-way delays
// read as round trips would give half of it, the reverse double
// (Shopify/toxiproxy#655).
func TestDelays(t *testing.T) {
	p, table := callers(1, 1, heart.Weighted)
	p.Nodes = append(p.Nodes, testbed.Node{Name: "n2", Cores: 4, Slowness: 2})
	p.RTT = [][]time.Duration{{0, 30 * time.Millisecond}, {30 * time.Millisecond, 0}}
	p.Replicas[1].Node = "n2"
	p.Network = testbed.Network{Sidecar: ms(0.5), SidecarScaled: true}
	p.Entry.ClientRTT = ms(4)
	w := build(t, p)
	require.NoError(t, w.route(table))
	m := play(t, w)
	want := 4 + 2*0.5 + 30 + 2*(0.5+1) + 2*1.0 // client, its side of a1, link, sidecars of a1 and b1, 1 ms on a slow node
	require.InDelta(t, want*1000, m.LatencyMeanUs, 0.01)
}

// Jitter never reorders messages of one direction of a link
// (Haivision/srt#735).
func TestJitterKeepsOrder(t *testing.T) {
	p, _ := callers(1, 1, heart.Weighted)
	p.Nodes = append(p.Nodes, testbed.Node{Name: "n2", Cores: 4, Slowness: 1})
	p.RTT = [][]time.Duration{{0, 10 * time.Millisecond}, {10 * time.Millisecond, 0}}
	p.Replicas[1].Node = "n2"
	p.Network.Jitter = ms(5)
	w := build(t, p)
	last, spread := int64(0), map[int64]bool{}
	for i := range 1000 {
		w.now = int64(i) * 1000
		at := w.arrival(0, 1, 0)
		require.GreaterOrEqual(t, at, last)
		require.GreaterOrEqual(t, at, w.now+5_000_000, "jitter only adds")
		last = at
		spread[at-w.now] = true
	}
	require.Greater(t, len(spread), 10)
}
