package sim

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// A server that stalls for 1 s every 10 s at 100 requests a second: counted
// from the due time the mean is 50 ms above the service time and P99 900 ms.
// An antagonist that takes the whole core plays the stall.
func TestStallCountsFromTheDueTime(t *testing.T) {
	p := solo(0.01, workloads.Server{Threads: 1})
	p.Nodes[0].Cores = 1
	p.RPS = 100
	p.Timing.Duration = ms(200_000)
	p.Antagonists = []testbed.Antagonist{{
		Nodes: []string{"n1"}, StealCores: 1,
		PauseMin: ms(9000), PauseMax: ms(9000), BurstMin: ms(1000), BurstMax: ms(1000),
	}}
	m := play(t, build(t, p))
	require.InDelta(t, 50_000, m.LatencyMeanUs, 1000)
	require.InDelta(t, 900_000, float64(m.Latency.ValueAtQuantile(99)), 10_000)
}

// wrk2 over ten connections and four threads uses eight; each has one request
// outstanding, so a server of 100 ms answers at most 80 requests a second and
// the latency of the schedule grows with the run: P99 ~ T (1 - 80/100).
func TestWrk2CapsByItsConnections(t *testing.T) {
	p := solo(100, workloads.Server{Threads: 16})
	p.Nodes[0].Cores = 16
	p.Load = workloads.Load{Schedule: "wrk2", Threads: 4, Connections: 10, Stagger: ms(5)}
	p.RPS = 100
	p.Timing.Duration, p.Timing.Drop = ms(60_000), ms(10_000)
	m := play(t, build(t, p))
	require.InDelta(t, 80, m.CompletedRPS, 1)
	require.InDelta(t, 8, m.OutstandingMean, 0.1)
	require.InDelta(t, 100, m.OfferedRPS, 0.1)
	require.EqualValues(t, m.Offered, m.Answered+m.CutOff+m.Unsent)
	require.Greater(t, m.Unsent, int64(500))
	require.InDelta(t, 60*0.2*1e6, float64(m.Latency.ValueAtQuantile(99)), 0.3e6)
}

// Requests given up are counted as such and free their connection.
func TestTimeout(t *testing.T) {
	p := solo(300, workloads.Server{Threads: 1})
	p.Load = workloads.Load{Schedule: "wrk2", Threads: 1, Connections: 1, Timeout: ms(200)}
	p.Timing.Duration = ms(4500)
	m := play(t, build(t, p))
	require.EqualValues(t, 5, m.TimedOut, "due at 0, 1, 2, 3 and 4 s")
	require.Zero(t, m.Answered)
	require.Equal(t, m.Offered, m.TimedOut)
}

// An open schedule waits for the answers of what it has sent.
func TestOpenScheduleDrains(t *testing.T) {
	p := solo(900, workloads.Server{Threads: 1})
	m := play(t, build(t, p))
	require.EqualValues(t, 2, m.Answered, "due at 1 s and 2 s, the last answered after the end at 2.5 s")
	require.Zero(t, m.CutOff)
}

// The windows of utilisation cover the measured time; replicas are counted
// against what they may use.
func TestWindows(t *testing.T) {
	p := solo(500, workloads.Server{Threads: 1, LimitCores: 0.8})
	p.Timing.Duration = ms(4000)
	p.Control.Window = ms(1000)
	m := play(t, build(t, p))
	require.Len(t, m.Windows, 4)
	require.Zero(t, m.Windows[0].Busy["a1"])
	require.InDelta(t, 0.5/0.8, m.Windows[2].Busy["a1"], 0.1)
	require.Equal(t, 4*time.Second, m.Windows[3].End)
}

// Observations are windowed and late: with scrapes every 5 s, a lag of 2 s and
// a window of 10 s, what is seen at 26 s is the time from 10 s to 20 s.
func TestObservationsAreWindowedAndLate(t *testing.T) {
	p := solo(100, workloads.Server{Threads: 1})
	p.Timing.Duration = ms(40_000)
	p.Control = testbed.Control{Period: ms(13_000), Window: ms(10_000), Scrape: ms(5000), Lag: ms(2000)}
	w := build(t, p)
	require.Empty(t, w.observe().Replicas, "nothing is observed before the first scrapes")
	var seen []heart.Observation
	_, err := w.run(t.Context(), func(context.Context) error {
		seen = append(seen, w.observe())
		return errors.New("a step that fails is counted and the run goes on")
	})
	require.NoError(t, err)
	require.Len(t, seen, 3)
	require.Equal(t, time.Unix(20, 0).UTC(), seen[1].End)
	require.Equal(t, 10*time.Second, seen[1].Window)
	require.InDelta(t, 10, seen[1].Replicas["a1"].Requests, 0)
	require.InDelta(t, 1.0, seen[1].Replicas["a1"].CPUSeconds, 1e-9)
	require.Len(t, w.client.measured.StepErrors, 3)
}

// The same seed gives the same bytes, another seed others; a cancelled run is
// no result.
func TestDeterminism(t *testing.T) {
	p, table := callers(2, 3, heart.LeastRequest)
	p.App.ServiceTime = workloads.Distribution{Kind: "lognormal", CV: 0.7}
	p.Load.Arrivals = "poisson"
	p.RPS = 100
	p.Timing.Duration = ms(30_000)
	bytes := func(seed uint64) string {
		p.Seed = seed
		w := build(t, p)
		require.NoError(t, w.route(table))
		raw, err := json.Marshal(play(t, w))
		require.NoError(t, err)
		return string(raw)
	}
	require.Equal(t, bytes(1), bytes(1))
	require.NotEqual(t, bytes(1), bytes(2))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := build(t, p).run(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// A request costs the same under every policy: the service times drawn do not
// depend on the routing.
func TestCommonRandomNumbers(t *testing.T) {
	cpu := func(balancer heart.Balancer) float64 {
		p, table := callers(2, 3, balancer)
		p.App.ServiceTime = workloads.Distribution{Kind: "exponential"}
		p.RPS = 50
		p.Timing.Duration = ms(20_000)
		w := build(t, p)
		require.NoError(t, w.route(table))
		play(t, w)
		sum := 0.0
		for _, s := range w.stations {
			sum += s.cpu
		}
		return sum
	}
	require.InDelta(t, cpu(heart.Weighted), cpu(heart.LeastRequest), 1)
}

// Memory does not grow with the run: visits and requests are reused.
func TestMemoryIsFlat(t *testing.T) {
	p, table := callers(1, 1, heart.Weighted)
	p.RPS = 200
	p.Timing.Duration = ms(100_000)
	w := build(t, p)
	require.NoError(t, w.route(table))
	play(t, w)
	require.Less(t, len(w.visits), 50)
	require.Less(t, len(w.client.requests), 50)
	require.Less(t, cap(w.events.heap), 100)
}
