package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"heartbed/heart"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every policy keeps the contract of heart.Policy, whatever is thrown at it.
// A new policy is under test as soon as it is registered.
func TestContract(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				windows := drawWindows(t)
				first, second := mustNew(t, name), mustNew(t, name)
				for w, o := range windows {
					before := fmt.Sprint(o)
					a, err := first.Allocate(o, nil)
					require.NoError(t, err, "window %d", w)
					require.Equal(t, before, fmt.Sprint(o), "the observation was changed")
					b, err := second.Allocate(o, nil)
					require.NoError(t, err)
					require.Equal(t, encode(t, a), encode(t, b), "two runs differ in window %d", w)
					require.NoError(t, a.Table.Validate(o.Topology))
					checkTrace(t, a)
				}
			})
		})
	}
}

// Edge cases that random topologies meet too seldom.
func TestContractEdges(t *testing.T) {
	cases := map[string]func(o *heart.Observation){
		"nothing observed":    func(o *heart.Observation) { o.Replicas = nil },
		"zero requests":       func(o *heart.Observation) { set(o, heart.Sample{CPUSeconds: 3}) },
		"zero CPU":            func(o *heart.Observation) { set(o, heart.Sample{Requests: 300}) },
		"tiny and huge loads": func(o *heart.Observation) { set(o, heart.Sample{CPUSeconds: 1e300, Requests: 1e-300}) },
		"negative requests":   func(o *heart.Observation) { set(o, heart.Sample{CPUSeconds: 1, Requests: -1}) },
		"one replica each":    func(o *heart.Observation) { o.Topology.Replicas = o.Topology.Replicas[3:5] },
		"all on one node":     func(o *heart.Observation) { place(o, "n1") },
		"callees on one node": func(o *heart.Observation) { place(o, "n1", "n2") },
		"nothing measured":    func(o *heart.Observation) { rtt(o, func(i, j int) time.Duration { return heart.Unmeasured }) },
		"only local measured": func(o *heart.Observation) { rtt(o, localOnly) },
		"all equally far":     func(o *heart.Observation) { rtt(o, func(i, j int) time.Duration { return time.Millisecond }) },
		"all at no distance":  func(o *heart.Observation) { rtt(o, func(i, j int) time.Duration { return 0 }) },
		"one way farther":     func(o *heart.Observation) { rtt(o, asymmetric) },
		"no calls":            func(o *heart.Observation) { o.Topology.Calls = nil },
		"a call listed twice": func(o *heart.Observation) { o.Topology.Calls = append(o.Topology.Calls, o.Topology.Calls[0]) },
		"a component calls back": func(o *heart.Observation) {
			o.Topology.Calls = append(o.Topology.Calls, heart.Call{From: "e", To: "d"})
		},
		"a component and itself": func(o *heart.Observation) {
			o.Topology.Calls = append(o.Topology.Calls, heart.Call{From: "e", To: "e"})
		},
		"nothing at all": func(o *heart.Observation) { *o = heart.Observation{} },
	}
	for _, name := range Names() {
		for label, change := range cases {
			t.Run(name+"/"+label, func(t *testing.T) {
				o := motivation()
				change(&o)
				p := mustNew(t, name)
				for range 3 {
					d, err := p.Allocate(o, nil)
					require.NoError(t, err)
					require.NoError(t, d.Table.Validate(o.Topology))
					checkTrace(t, d)
				}
			})
		}
	}
}

// A topology that contradicts itself is an error that names the fault, never a
// panic, and leaves the policy usable.
func TestContractBadTopology(t *testing.T) {
	cases := map[string]struct {
		change func(o *heart.Observation)
		fault  string
	}{
		"unknown node":      {func(o *heart.Observation) { o.Topology.Replicas[0].Node = "n9" }, `"n9"`},
		"unknown component": {func(o *heart.Observation) { o.Topology.Calls[0].To = "x" }, `"x"`},
		"short RTT row":     {func(o *heart.Observation) { o.Topology.RTT[1] = o.Topology.RTT[1][:2] }, "row 2"},
		"missing RTT row":   {func(o *heart.Observation) { o.Topology.RTT = o.Topology.RTT[:2] }, "2 rows"},
		"negative RTT":      {func(o *heart.Observation) { o.Topology.RTT[0][1] = -5 }, "negative"},
		"node twice":        {func(o *heart.Observation) { o.Topology.Nodes[1].Name = "n1" }, "twice"},
	}
	for _, name := range Names() {
		for label, c := range cases {
			t.Run(name+"/"+label, func(t *testing.T) {
				p := mustNew(t, name)
				o := motivation()
				c.change(&o)
				_, err := p.Allocate(o, nil)
				require.ErrorContains(t, err, c.fault)
				_, err = p.Allocate(motivation(), nil)
				require.NoError(t, err)
			})
		}
	}
}

// Stages are timed by the clock that is handed in, and only by it.
func TestContractMeter(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			var ticks int
			m := &heart.Meter{Now: func() time.Time { ticks++; return time.Unix(int64(ticks), 0) }}
			m.Start()
			_, err := mustNew(t, name).Allocate(motivation(), m)
			require.NoError(t, err)
			require.NotEmpty(t, m.Seconds)
			var sum float64
			for _, s := range m.Seconds {
				sum += s
			}
			require.Equal(t, float64(ticks-1), sum, "the stages cover the whole call")
		})
	}
}

func FuzzPolicies(f *testing.F) {
	seed := make([]byte, 8192)
	rand.NewChaCha8([32]byte{}).Read(seed)
	f.Add(seed)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		name := rapid.SampledFrom(Names()).Draw(t, "policy")
		p := mustNew(t, name)
		for _, o := range drawWindows(t) {
			d, err := p.Allocate(o, nil)
			require.NoError(t, err)
			require.NoError(t, d.Table.Validate(o.Topology))
			checkTrace(t, d)
		}
	}))
}

// checkTrace checks what must hold of any trace of HEART's stages.
func checkTrace(t require.TestingT, d heart.Decision) {
	for _, c := range d.Stages.ATPM {
		sum := 0.0
		for _, g := range c.Groups {
			require.GreaterOrEqual(t, g.Share, 0.0)
			sum += g.Share
		}
		require.InDelta(t, 1, sum, 1e-9, "shares of %s", c.Component)
	}
	cut := map[heart.LinkName]bool{}
	for _, p := range d.Stages.NTAM {
		require.True(t, p.Feasible)
		require.GreaterOrEqual(t, p.CostMs, 0.0)
		require.Subset(t, p.High, p.Removed)
		require.Subset(t, p.High, p.Restored)
		for _, name := range p.Removed {
			require.NotContains(t, p.Restored, name)
			cut[name] = true
		}
	}
	for _, r := range d.Table.Routes {
		for _, s := range r.Shares {
			require.False(t, cut[heart.LinkName{From: r.From, To: s.To}], "a route over the removed link %s to %s", r.From, s.To)
		}
	}
}

// drawWindows draws a topology of up to five nodes and four components in any
// call graph, and some windows of measurements with gaps.
func drawWindows(t *rapid.T) []heart.Observation {
	var topology heart.Topology
	nodes := rapid.IntRange(1, 5).Draw(t, "nodes")
	delay := rapid.Custom(func(t *rapid.T) time.Duration {
		if rapid.IntRange(0, 9).Draw(t, "unmeasured") == 0 {
			return heart.Unmeasured
		}
		return time.Duration(rapid.IntRange(0, 40).Draw(t, "ms")) * time.Millisecond
	})
	for i := range nodes {
		topology.Nodes = append(topology.Nodes, heart.Node{Name: fmt.Sprintf("n%d", i+1)})
		row := make([]time.Duration, nodes)
		for j := range row {
			if i != j {
				row[j] = delay.Draw(t, "rtt")
			}
		}
		topology.RTT = append(topology.RTT, row)
	}
	components := []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "components")]
	for _, c := range components {
		for i := range rapid.IntRange(1, 6).Draw(t, "replicas") {
			topology.Replicas = append(topology.Replicas, heart.Replica{
				Name: fmt.Sprintf("%s%d", c, i+1), Component: c,
				Node:     topology.Nodes[rapid.IntRange(0, nodes-1).Draw(t, "node")].Name,
				CPULimit: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "limit"),
			})
		}
		for _, to := range components {
			if rapid.IntRange(0, 2).Draw(t, "calls") == 0 {
				topology.Calls = append(topology.Calls, heart.Call{From: c, To: to})
			}
		}
	}
	windows := make([]heart.Observation, rapid.IntRange(1, 4).Draw(t, "windows"))
	for w := range windows {
		windows[w] = heart.Observation{Topology: topology, Window: 30 * time.Second, Replicas: map[string]heart.Sample{}}
		for _, r := range topology.Replicas {
			if rapid.IntRange(0, 3).Draw(t, "gap") > 0 {
				windows[w].Replicas[r.Name] = heart.Sample{
					CPUSeconds: rapid.Float64Range(0, 30).Draw(t, "cpu"),
					Requests:   rapid.SampledFrom([]float64{0, 0.5, 10, 333.3, 1e6}).Draw(t, "requests"),
				}
			}
		}
	}
	return windows
}

func mustNew(t require.TestingT, name string, params ...string) heart.Policy {
	values := map[string]string{}
	for i := 0; i < len(params); i += 2 {
		values[params[i]] = params[i+1]
	}
	p, err := New(name, values)
	require.NoError(t, err)
	return p
}

// encode renders a decision to the byte.
func encode(t require.TestingT, d heart.Decision) string {
	text, err := json.Marshal(d)
	require.NoError(t, err)
	return string(text)
}

// motivation is the motivating example of LATA: d1 and d4 on n1, d2 on n2, d3
// on n3 call e1, e2, e3 on n1, n2, n3.
func motivation() heart.Observation {
	ms := time.Millisecond
	o := heart.Observation{
		Window: 30 * time.Second,
		Topology: heart.Topology{
			Nodes: []heart.Node{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}},
			RTT:   [][]time.Duration{{0, 10 * ms, 22 * ms}, {10 * ms, 0, 10 * ms}, {22 * ms, 10 * ms, 0}},
			Calls: []heart.Call{{From: "d", To: "e"}},
			Replicas: []heart.Replica{
				{Name: "d1", Component: "d", Node: "n1"}, {Name: "d2", Component: "d", Node: "n2"},
				{Name: "d3", Component: "d", Node: "n3"}, {Name: "d4", Component: "d", Node: "n1"},
				{Name: "e1", Component: "e", Node: "n1"}, {Name: "e2", Component: "e", Node: "n2"},
				{Name: "e3", Component: "e", Node: "n3"},
			},
		},
		Replicas: map[string]heart.Sample{},
	}
	set(&o, heart.Sample{CPUSeconds: 6, Requests: 300})
	return o
}

func set(o *heart.Observation, s heart.Sample) {
	for _, r := range o.Topology.Replicas {
		o.Replicas[r.Name] = s
	}
}

// place puts the callers on the first node and the callees on the last.
func place(o *heart.Observation, nodes ...string) {
	for i := range o.Topology.Replicas {
		r := &o.Topology.Replicas[i]
		if r.Node = nodes[0]; r.Component == "e" {
			r.Node = nodes[len(nodes)-1]
		}
	}
}

func rtt(o *heart.Observation, between func(i, j int) time.Duration) {
	for i, row := range o.Topology.RTT {
		for j := range row {
			row[j] = between(i, j)
		}
	}
}

func localOnly(i, j int) time.Duration {
	if i == j {
		return 0
	}
	return heart.Unmeasured
}

func asymmetric(i, j int) time.Duration { return time.Duration(max(0, j-i)) * 7 * time.Millisecond }
