package policy

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/heart/flow"
)

// sharesOf reads the routes of a table: caller -> callee -> share.
func sharesOf(t *testing.T, name string, o heart.Observation, params ...string) map[string]map[string]float64 {
	t.Helper()
	d, err := mustNew(t, name, params...).Allocate(o, nil)
	require.NoError(t, err)
	shares := map[string]map[string]float64{}
	for _, r := range d.Table.Routes {
		sum := 0.0
		for _, s := range r.Shares {
			sum += float64(s.Weight)
		}
		shares[r.From] = map[string]float64{}
		for _, s := range r.Shares {
			shares[r.From][s.To] = float64(s.Weight) / sum
		}
	}
	return shares
}

// OptTraffic (ICPP 2023), allocation of the motivating example. Vector O1.
func TestOptTrafficMotivation(t *testing.T) {
	require.Equal(t, map[string]map[string]float64{
		"d@n1": {"e1": 0.6667, "e2": 0.1667, "e3": 0.1666},
		"d@n2": {"e2": 1},
		"d@n3": {"e3": 1},
	}, sharesOf(t, "opttraffic", motivation()))
}

// OptTraffic on a1 a2 b1 | a3 a4 b2 | a5 b3. Vector O2.
func TestOptTrafficCustom(t *testing.T) {
	o := motivation()
	o.Topology.Calls = []heart.Call{{From: "a", To: "b"}}
	o.Topology.Replicas = nil
	for i, node := range []string{"n1", "n1", "n2", "n2", "n3"} {
		o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: fmt.Sprintf("a%d", i+1), Component: "a", Node: node})
	}
	for i := range 3 {
		o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: fmt.Sprintf("b%d", i+1), Component: "b", Node: fmt.Sprintf("n%d", i+1)})
	}
	require.Equal(t, map[string]map[string]float64{
		"a@n1": {"b1": 0.8333, "b3": 0.1667},
		"a@n2": {"b2": 0.8333, "b3": 0.1667},
		"a@n3": {"b3": 1},
	}, sharesOf(t, "opttraffic", o))
}

// LATA (ICSOC 2024), motivating example. Vector L1: the optimum is 990 with
// 22 ms from n1 to n3, and 924 with 18. Which of the two callers on n1 does
// what is a tie, so cost and flows by node are compared.
func TestLATAMotivation(t *testing.T) {
	cases := map[string]struct {
		far    time.Duration
		cost   float64 // ms times units of 1/100 of a caller
		byNode map[string]map[string]float64
	}{
		"22 ms": {22, 990, map[string]map[string]float64{
			"n1": {"e1": 134, "e2": 66}, "n2": {"e2": 67, "e3": 33}, "n3": {"e3": 100}}},
		"18 ms": {18, 924, map[string]map[string]float64{
			"n1": {"e1": 134, "e2": 33, "e3": 33}, "n2": {"e2": 100}, "n3": {"e3": 100}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := motivation()
			o.Topology.RTT[0][2], o.Topology.RTT[2][0] = c.far*time.Millisecond, c.far*time.Millisecond
			d, err := mustNew(t, "lata").Allocate(o, nil)
			require.NoError(t, err)
			nodes := map[string]heart.Group{}
			for _, g := range d.Table.Groups {
				nodes[g.Name] = g
			}
			index := o.Topology.NodeIndex()
			cost, byNode := 0.0, map[string]map[string]float64{}
			for _, r := range d.Table.Routes {
				from := nodes[r.From].Node
				if byNode[from] == nil {
					byNode[from] = map[string]float64{}
				}
				for _, s := range r.Shares {
					byNode[from][s.To] += float64(s.Weight)
					cost += float64(s.Weight) * float64(o.Topology.RTT[index[from]][index[nodes[s.To].Node]].Milliseconds())
				}
			}
			require.Equal(t, c.cost, cost)
			require.Equal(t, c.byNode, byNode)
		})
	}
}

// The authors' code cuts delays to whole milliseconds: 1.9 ms to the near
// replica and 1.0 ms to the far one cost the same there.
func TestLATATruncates(t *testing.T) {
	o := motivation()
	o.Topology.Replicas = []heart.Replica{
		{Name: "d1", Component: "d", Node: "n1"}, {Name: "d2", Component: "d", Node: "n2"},
		{Name: "e1", Component: "e", Node: "n1"}, {Name: "e2", Component: "e", Node: "n2"},
	}
	cut := func(i, j int) time.Duration { return time.Millisecond }
	full := func(i, j int) time.Duration { return time.Millisecond + time.Duration(1-(i+j)%2)*900*time.Microsecond }
	rtt(&o, cut)
	equal := sharesOf(t, "lata", o, "truncate", "on")
	rtt(&o, full)
	require.Equal(t, equal, sharesOf(t, "lata", o, "truncate", "on"))
	require.Equal(t, map[string]map[string]float64{"d1": {"e2": 1}, "d2": {"e1": 1}}, sharesOf(t, "lata", o))
}

func TestLocalization(t *testing.T) {
	o := motivation()
	o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: "e4", Component: "e", Node: "n2"})
	require.Equal(t, map[string]map[string]float64{"d@n1": {"e1": 1}, "d@n2": {"e2": 1}, "d@n3": {"e3": 1}},
		sharesOf(t, "localization", o), "the first of two on n2 wins")
	require.Equal(t, map[string]float64{"e@n2": 1}, sharesOf(t, "localization", o, "to", "node")["d@n2"])

	o.Topology.RTT[0][0], o.Topology.RTT[0][1] = heart.Unmeasured, heart.Unmeasured
	require.Equal(t, map[string]float64{"e3": 1}, sharesOf(t, "localization", o)["d@n1"], "unmeasured is farther than 22 ms")
	o.Topology.RTT[0][2] = heart.Unmeasured
	require.Equal(t, map[string]float64{"e1": 1}, sharesOf(t, "localization", o)["d@n1"], "but never nothing")
}

func TestWholeComponents(t *testing.T) {
	for name, want := range map[string]heart.Balancer{
		"kubeproxy": heart.PerConnection, "least-request": heart.LeastRequest, "roundrobin": heart.RoundRobin,
	} {
		d, err := mustNew(t, name).Allocate(motivation(), nil)
		require.NoError(t, err)
		require.Equal(t, []heart.Route{{From: "d", To: "e", Balancer: want, Shares: []heart.Share{{To: "e", Weight: 1}}}}, d.Table.Routes)
	}
	third := 1.0 / 3
	require.Equal(t, map[string]float64{"e1": third, "e2": third, "e3": third},
		sharesOf(t, "kubeproxy", motivation(), "per", "request")["d@n1"])
}

// Large enough for goroutines: one core and several decide the same.
func TestParallelIsDeterministic(t *testing.T) {
	for name, o := range map[string]heart.Observation{
		"heart": chain(900, 6, 150), // 5 calls of 150 by 150 groups
		"lata":  chain(900, 6, 5),   // 5 calls of 150 by 150 replicas
	} {
		t.Run(name, func(t *testing.T) {
			decide := func(cores int) string {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
				d, err := mustNew(t, name).Allocate(o, nil)
				require.NoError(t, err)
				require.NoError(t, d.Table.Validate(o.Topology))
				return encode(t, d)
			}
			alone := decide(1)
			require.Equal(t, alone, decide(4))
			require.Equal(t, alone, decide(4))
		})
	}
}

// The trace of a call lists no more links than asked for, and says so.
func TestTraceLinks(t *testing.T) {
	d, err := mustNew(t, "heart", "trace-links", "2").Allocate(chain(100, 2, 5), nil)
	require.NoError(t, err)
	require.Len(t, d.Stages.NTAM[0].High, 2)
	require.LessOrEqual(t, len(d.Stages.NTAM[0].Removed), 2)
	require.Len(t, d.Warnings, 1)
	require.Contains(t, d.Warnings[0], "left out of the trace")
}

// Costs that overflow are an error that names the call.
func TestLATAOverflow(t *testing.T) {
	o := motivation()
	rtt(&o, func(i, j int) time.Duration { return 1<<63 - 1 })
	_, err := mustNew(t, "lata", "truncate", "off", "supply", "1000000").Allocate(o, nil)
	require.ErrorIs(t, err, flow.ErrOverflow)
	require.ErrorContains(t, err, "call d to e")
}
