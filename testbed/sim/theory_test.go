package sim_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/testbed/sim"
	"heartbed/workloads"
)

// single is one component on one node, asked by Poisson arrivals with nothing
// between client and server: the textbook queue.
func single(kind string, cv float64, server workloads.Server, rps float64) testbed.Plan {
	return testbed.Plan{
		App: workloads.Application{
			Name: "single", Entry: "a", Server: server,
			Components:  []workloads.Component{{Name: "a", Replicas: 1, Steps: []workloads.Step{{CPUMs: 10}}}},
			ServiceTime: workloads.Distribution{Kind: kind, CV: cv},
		},
		Nodes:    []testbed.Node{{Name: "n1", Cores: 16, Slowness: 1}},
		RTT:      [][]time.Duration{{0}},
		Replicas: []heart.Replica{{Name: "a1", Component: "a", Node: "n1"}},
		Load:     workloads.Load{Schedule: "open", Arrivals: "poisson"},
		RPS:      rps,
		Timing:   testbed.Timing{Warmup: workloads.Duration(100 * time.Second), Duration: workloads.Duration(8000 * time.Second)},
		Seed:     1,
	}
}

func run(t *testing.T, p testbed.Plan) testbed.Measurement {
	t.Helper()
	s, err := sim.Backend{}.Start(t.Context(), p)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	m, err := s.Run(t.Context(), func(context.Context) error { return nil })
	require.NoError(t, err)
	return m
}

// erlangC is the probability of waiting in M/M/c at offered load a.
func erlangC(c int, a float64) float64 {
	sum, term := 0.0, 1.0
	for k := range c {
		sum += term
		term *= a / float64(k+1)
	}
	last := term * float64(c) / (float64(c) - a)
	return last / (sum + last)
}

// The mean sojourn times of the textbook queues; service 10 ms, so that a
// rate of 70 is a utilisation of 0.7 on one core. The error is stated a row.
func TestClosedForms(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of requests; run without -short")
	}
	const service = 10.0
	mg1 := func(rho, cv2 float64) float64 { return service * (1 + rho/(1-rho)*(1+cv2)/2) }
	for _, c := range []struct {
		name   string
		kind   string
		cv     float64
		server workloads.Server
		rps    float64
		want   float64 // mean, ms
		within float64 // relative
	}{
		{"M/M/1 0.5", "exponential", 0, workloads.Server{Slots: 1, Threads: 1}, 50, service / 0.5, 0.01},
		{"M/M/1 0.8", "exponential", 0, workloads.Server{Slots: 1, Threads: 1}, 80, service / 0.2, 0.02},
		{"M/M/4 0.8", "exponential", 0, workloads.Server{Slots: 4, Threads: 4}, 320, service + erlangC(4, 3.2)*service/0.8, 0.01},
		{"M/D/1 0.8", "deterministic", 0, workloads.Server{Slots: 1, Threads: 1}, 80, mg1(0.8, 0), 0.01},
		{"M/G/1 0.8, lognormal cv 0.7", "lognormal", 0.7, workloads.Server{Slots: 1, Threads: 1}, 80, mg1(0.8, 0.49), 0.02},
		{"M/M/1-PS 0.8", "exponential", 0, workloads.Server{Threads: 1}, 80, service / 0.2, 0.02},
		{"M/G/1-PS 0.8: insensitive to the distribution", "lognormal", 2, workloads.Server{Threads: 1}, 80, service / 0.2, 0.03},
		{"M/D/1-PS 0.5", "deterministic", 0, workloads.Server{Threads: 1}, 50, service / 0.5, 0.01},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := run(t, single(c.kind, c.cv, c.server, c.rps))
			mean := m.LatencyMeanUs / 1e3
			t.Logf("mean %.3f ms, closed form %.3f ms, error %+.2f %%, %d requests", mean, c.want, 100*(mean/c.want-1), m.Answered)
			require.InEpsilon(t, c.want, mean, c.within)
			require.InEpsilon(t, m.AchievedRPS*m.LatencyMeanUs/1e6, m.OutstandingMean, 0.001, "Little's law")
			require.InEpsilon(t, m.OccupiedMean, m.OutstandingMean, 1e-9)
			require.Equal(t, m.Offered, m.Answered)
		})
	}
}

// In M/M/1 the sojourn time is exponential, so its P99 is -ln(0.01) means.
func TestClosedFormPercentile(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of requests; run without -short")
	}
	m := run(t, single("exponential", 0, workloads.Server{Slots: 1, Threads: 1}, 70))
	want := -math.Log(0.01) * 10 / 0.3
	require.InEpsilon(t, want, float64(m.Latency.ValueAtQuantile(99))/1e3, 0.02)
}
