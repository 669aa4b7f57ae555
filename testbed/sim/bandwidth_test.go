package sim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// ms turns milliseconds into the type of plans.
func ms(v float64) workloads.Duration { return workloads.Duration(v * float64(time.Millisecond)) }

// solo is one replica that is asked once a second; a request costs cpu ms.
func solo(cpu float64, server workloads.Server) testbed.Plan {
	return testbed.Plan{
		App: workloads.Application{
			Name: "solo", Entry: "a", Server: server,
			Components: []workloads.Component{{Name: "a", Replicas: 1, Steps: []workloads.Step{{CPUMs: cpu}}}},
		},
		Nodes:    []testbed.Node{{Name: "n1", Cores: 4, Slowness: 1}},
		RTT:      [][]time.Duration{{0}},
		Replicas: []heart.Replica{{Name: "a1", Component: "a", Node: "n1"}},
		Load:     workloads.Load{Schedule: "open", Arrivals: "even"},
		RPS:      1,
		Timing:   testbed.Timing{Duration: ms(2500)},
	}
}

// play runs a world and returns it with its measurement.
func play(t *testing.T, w *world) testbed.Measurement {
	t.Helper()
	m, err := w.run(t.Context(), func(context.Context) error { return nil })
	require.NoError(t, err)
	return m
}

func build(t *testing.T, p testbed.Plan) *world {
	t.Helper()
	w, err := newWorld(p)
	require.NoError(t, err)
	return w
}

// Hand calculation, quota 50 ms each 100 ms, boundaries at whole tenths of a
// second, a request of 120 ms at 1 s: runs 1.00-1.05, throttled to 1.10, runs
// to 1.15, throttled to 1.20, runs to 1.22: latency 220 ms. The timer ticks at
// 1.1 and 1.2 (both throttled), at 1.3 (the group ran since 1.2) and at 1.4
// (idle: it stops): 4 periods. The request at 2 s does the same.
func TestQuotaByHand(t *testing.T) {
	w := build(t, solo(120, workloads.Server{Threads: 1, LimitCores: 0.5}))
	w.stations[0].quota.boundary = 0
	m := play(t, w)
	require.EqualValues(t, 2, m.Answered)
	require.InDelta(t, 220_000, m.LatencyMeanUs, 0.01)
	require.Equal(t, testbed.Throttling{Periods: 8, Throttled: 4, ThrottledTime: 200 * time.Millisecond}, m.Throttled["a1"])
}

// With a burst of 50 ms the first request finds the quota alone (220 ms). The
// group keeps the 30 ms left in its last period, gets 50 at 1.3 and is capped
// at 100 at 1.4; so the request at 2 s runs 100 ms at once, is refilled at the
// boundary 2.1 and ends at 2.12: latency 120 ms.
func TestBurstByHand(t *testing.T) {
	w := build(t, solo(120, workloads.Server{Threads: 1, LimitCores: 0.5, Burst: ms(50)}))
	w.stations[0].quota.boundary = 0
	m := play(t, w)
	require.InDelta(t, (220_000+120_000)/2, m.LatencyMeanUs, 0.01)
	require.InDelta(t, 220_000, float64(m.Latency.Max()), 220)
	require.InDelta(t, 120_000, float64(m.Latency.Min()), 120)
}

// A shorter period with the same half core throttles more often but for less
// long: 120 ms in slices of 5 ms each 10 ms, from a boundary: 23 x 10 + 5 ms
// (kubernetes/kubernetes#67577, #51135).
func TestShortPeriodByHand(t *testing.T) {
	w := build(t, solo(120, workloads.Server{Threads: 1, LimitCores: 0.5, Period: ms(10)}))
	w.stations[0].quota.boundary = 0
	m := play(t, w)
	require.InDelta(t, 235_000, m.LatencyMeanUs, 0.01)
	require.EqualValues(t, 2*23, m.Throttled["a1"].Throttled)
}

// Four threads under a quota of two cores use up 200 ms in 50 ms.
func TestQuotaOfSeveralThreads(t *testing.T) {
	p := solo(100, workloads.Server{Threads: 4, LimitCores: 2})
	p.App.Components[0].Steps = []workloads.Step{{Call: []string{"b", "b", "b", "b"}}}
	p.App.Components = append(p.App.Components, workloads.Component{Name: "b", Replicas: 1, Steps: []workloads.Step{{CPUMs: 100}}})
	p.Replicas = append(p.Replicas, heart.Replica{Name: "b1", Component: "b", Node: "n1"})
	w := build(t, p)
	w.stations[1].quota.boundary = 0
	require.NoError(t, w.route(heart.RoutingTable{
		Groups: []heart.Group{{Name: "a", Component: "a", Replicas: []string{"a1"}}, {Name: "b", Component: "b", Replicas: []string{"b1"}}},
		Routes: []heart.Route{{From: "a", To: "b", Balancer: heart.Weighted, Shares: []heart.Share{{To: "b", Weight: 1}}}},
	}))
	m := play(t, w)
	require.InDelta(t, 150_000, m.LatencyMeanUs, 0.01, "50 ms at four cores, throttled for 50 ms, 50 ms at four cores")
}

// A node of one core divides it by max-min fairness: what a small consumer
// leaves goes to the others.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		name  string
		cores float64
		want  []float64
		grant []float64
	}{
		{"room for all", 4, []float64{1, 2}, []float64{1, 2}},
		{"equal halves", 1, []float64{1, 1}, []float64{0.5, 0.5}},
		{"idle ones get nothing", 1, []float64{0, 1, 1}, []float64{0, 0.5, 0.5}},
		{"a small one leaves its rest", 3, []float64{0.5, 4, 4}, []float64{0.5, 1.25, 1.25}},
		{"two levels", 6.5, []float64{1, 1.5, 4, 4}, []float64{1, 1.5, 2, 2}},
		{"no core", 0, []float64{1, 1}, []float64{0, 0}},
	} {
		grant := make([]float64, len(c.want))
		share(c.cores, c.want, grant)
		require.InDeltaSlice(t, c.grant, grant, 1e-12, c.name)
	}
}

// Two replicas with a request each on a node of one core take twice as long;
// a stolen half core doubles that again; an inflation of 1.5 adds its factor.
func TestNodeContention(t *testing.T) {
	p := solo(100, workloads.Server{Threads: 1})
	p.App.Components[0].Steps = []workloads.Step{{Call: []string{"b", "c"}}}
	for _, name := range []string{"b", "c"} {
		p.App.Components = append(p.App.Components, workloads.Component{Name: name, Replicas: 1, Steps: []workloads.Step{{CPUMs: 100}}})
		p.Replicas = append(p.Replicas, heart.Replica{Name: name + "1", Component: name, Node: "n1"})
	}
	p.Nodes[0].Cores = 1
	table := heart.RoutingTable{Groups: []heart.Group{{Name: "a", Component: "a", Replicas: []string{"a1"}}}}
	for _, name := range []string{"b", "c"} {
		table.Groups = append(table.Groups, heart.Group{Name: name, Component: name, Replicas: []string{name + "1"}})
		table.Routes = append(table.Routes, heart.Route{From: "a", To: name, Balancer: heart.Weighted, Shares: []heart.Share{{To: name, Weight: 1}}})
	}
	always := testbed.Antagonist{Nodes: []string{"n1"}, BurstMin: ms(1e6), BurstMax: ms(1e6)}
	steal, inflate := always, always
	steal.StealCores, inflate.Inflate = 0.5, 1.5
	for _, c := range []struct {
		name        string
		antagonists []testbed.Antagonist
		wantMs      float64
	}{
		{"alone", nil, 200},
		{"half a core stolen", []testbed.Antagonist{steal}, 400},
		{"inflated", []testbed.Antagonist{inflate}, 300},
	} {
		p.Antagonists = c.antagonists
		w := build(t, p)
		require.NoError(t, w.route(table))
		m := play(t, w)
		require.InDelta(t, c.wantMs*1000, m.LatencyMeanUs, 0.01, c.name)
	}
}
