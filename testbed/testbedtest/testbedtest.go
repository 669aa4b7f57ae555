// Package testbedtest is the contract that every backend keeps: run it from
// the backend's own tests.
package testbedtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// Plan is a small plan that any backend can run in a few seconds: a calls b,
// two replicas each, on two nodes that are 10 ms apart, behind a gateway.
func Plan() testbed.Plan {
	second := func(s float64) workloads.Duration { return workloads.Duration(s * float64(time.Second)) }
	return testbed.Plan{
		App: workloads.Application{
			Name: "contract", Entry: "a",
			Components: []workloads.Component{
				{Name: "a", Replicas: 2, Steps: []workloads.Step{{CPUMs: 0.5}, {Call: []string{"b"}}}},
				{Name: "b", Replicas: 2, Steps: []workloads.Step{{CPUMs: 1}}},
			},
			Server: workloads.Server{Slots: 1, Threads: 1},
		},
		Nodes: []testbed.Node{{Name: "n1", Cores: 1, Slowness: 1}, {Name: "n2", Cores: 1, Slowness: 1}},
		RTT:   [][]time.Duration{{0, 10 * time.Millisecond}, {10 * time.Millisecond, 0}},
		Replicas: []heart.Replica{
			{Name: "a1", Component: "a", Node: "n1"}, {Name: "a2", Component: "a", Node: "n2"},
			{Name: "b1", Component: "b", Node: "n1"}, {Name: "b2", Component: "b", Node: "n2"},
		},
		Entry:   testbed.Entry{Gateway: "n1"},
		Load:    workloads.Load{Schedule: "open", Arrivals: "even"},
		RPS:     100,
		Timing:  testbed.Timing{Warmup: second(1), Duration: second(4)},
		Control: testbed.Control{Period: second(1), Window: second(1), Scrape: second(0.25)},
		Seed:    1,
	}
}

// Table sends each caller's requests to b1 and b2 with the given weights and
// the gateway's in equal parts.
func Table(b1, b2 uint32) heart.RoutingTable {
	group := func(name, component string, replicas ...string) heart.Group {
		return heart.Group{Name: name, Component: component, Replicas: replicas}
	}
	return heart.RoutingTable{
		Groups: []heart.Group{
			group("gateway", "gateway", "gateway"), group("a", "a", "a1", "a2"),
			group("b1", "b", "b1"), group("b2", "b", "b2"),
		},
		Routes: []heart.Route{
			{From: "gateway", To: "a", Balancer: heart.RoundRobin, Shares: []heart.Share{{To: "a", Weight: 1}}},
			{From: "a", To: "b", Balancer: heart.Weighted, Shares: []heart.Share{{To: "b1", Weight: b1}, {To: "b2", Weight: b2}}},
		},
	}
}

// Run checks the contract of a backend.
func Run(t *testing.T, backend testbed.Backend) {
	if err := backend.Check(t.Context()); errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	} else {
		require.NoError(t, err)
	}
	t.Run("counts every request and measures from the due time", func(t *testing.T) { counts(t, backend) })
	t.Run("follows the weights of the table in force", func(t *testing.T) { follows(t, backend) })
	t.Run("keeps the old table when a new one is faulty", func(t *testing.T) { failsStatic(t, backend) })
	t.Run("observes what happened and nothing before", func(t *testing.T) { observes(t, backend) })
	t.Run("goes on after a failed step and says so", func(t *testing.T) { stepFails(t, backend) })
	t.Run("ends without a result when cancelled", func(t *testing.T) { cancelled(t, backend) })
	t.Run("refuses a faulty plan", func(t *testing.T) { refuses(t, backend) })
}

func start(t *testing.T, backend testbed.Backend, table heart.RoutingTable) testbed.Session {
	t.Helper()
	s, err := backend.Start(t.Context(), Plan())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Route(t.Context(), table))
	return s
}

func nothing(context.Context) error { return nil }

func counts(t *testing.T, backend testbed.Backend) {
	steps := 0
	m, err := start(t, backend, Table(1, 1)).Run(t.Context(), func(context.Context) error { steps++; return nil })
	require.NoError(t, err)
	require.Empty(t, m.Faults)
	require.InDelta(t, 400, m.Offered, 2)
	require.Equal(t, m.Offered, m.Answered+m.Failed+m.TimedOut+m.CutOff+m.Unsent)
	require.Equal(t, m.Answered, m.Latency.TotalCount()+m.OverRange)
	require.InDelta(t, 5, steps, 1, "a step every second of warm-up and measured time")
	require.GreaterOrEqual(t, m.LatencyMeanUs, 1500.0, "1.5 ms of CPU are the least a request takes")
	require.InEpsilon(t, m.OccupiedMean, m.OutstandingMean, 0.01, "Little's law")
	require.NotEmpty(t, m.Windows)
	require.NotEmpty(t, m.Tables)
}

func follows(t *testing.T, backend testbed.Backend) {
	m, err := start(t, backend, Table(3, 1)).Run(t.Context(), nothing)
	require.NoError(t, err)
	count := map[string]float64{}
	for _, s := range m.Seen {
		count[s.To.Name] += float64(s.Requests)
	}
	total := count["b1"] + count["b2"]
	require.Greater(t, total, 300.0)
	require.InDelta(t, 0.75, count["b1"]/total, 0.09, "four standard deviations of 400 draws")
}

func failsStatic(t *testing.T, backend testbed.Backend) {
	s := start(t, backend, Table(1, 0))
	faulty := Table(0, 1)
	faulty.Groups = faulty.Groups[:3]
	require.Error(t, s.Route(t.Context(), faulty))
	m, err := s.Run(t.Context(), nothing)
	require.NoError(t, err)
	for _, share := range m.Seen {
		require.NotEqual(t, "b2", share.To.Name)
	}
}

func observes(t *testing.T, backend testbed.Backend) {
	s := start(t, backend, Table(1, 1))
	before, err := s.Observe(t.Context())
	require.NoError(t, err)
	require.Empty(t, before.Replicas, "not observed is absent, not zero")
	var last heart.Observation
	_, err = s.Run(t.Context(), func(ctx context.Context) error {
		last, err = s.Observe(ctx)
		return err
	})
	require.NoError(t, err)
	require.Contains(t, last.Replicas, "b1")
	require.Positive(t, last.Replicas["b1"].Requests)
	require.Positive(t, last.Replicas["b1"].CPUSeconds)
	require.Positive(t, last.Calls[heart.Call{From: "a", To: "b"}])
	require.NoError(t, last.Topology.Validate())
}

func stepFails(t *testing.T, backend testbed.Backend) {
	m, err := start(t, backend, Table(1, 1)).Run(t.Context(), func(context.Context) error { return errors.New("no metrics today") })
	require.NoError(t, err)
	require.NotEmpty(t, m.StepErrors)
	require.Contains(t, m.StepErrors[0], "no metrics today")
	require.Positive(t, m.Answered)
}

func cancelled(t *testing.T, backend testbed.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := start(t, backend, Table(1, 1)).Run(ctx, nothing)
	require.ErrorIs(t, err, context.Canceled)
}

func refuses(t *testing.T, backend testbed.Backend) {
	p := Plan()
	p.Replicas[0].Node = "nowhere"
	_, err := backend.Start(t.Context(), p)
	require.ErrorContains(t, err, "nowhere")
	p = Plan()
	p.RTT[1][0] *= 2
	_, err = backend.Start(t.Context(), p)
	require.ErrorContains(t, err, "found 10ms from n1 to n2 and 20ms from n2 to n1")
}
