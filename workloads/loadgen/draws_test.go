package loadgen

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

// drawServer keeps the seeds of the requests in the order of their coming.
type drawServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

// startDraws closes the connection of every request that is a multiple of
// breakEvery, without an answer; 0 = of none.
func startDraws(t *testing.T, breakEvery int) *drawServer {
	s := &drawServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r.Header.Get("X-Draw"))
		n := len(s.seen)
		s.mu.Unlock()
		if breakEvery > 0 && n%breakEvery == 0 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// simulated are the seeds of the first n requests of a run in the simulator.
func simulated(trial, run uint64, n int) []string {
	var seeds []string
	for serial := range uint64(n) {
		seeds = append(seeds, strconv.FormatUint(workloads.RequestDraws(trial, run, serial+1).Seed(), 10))
	}
	return seeds
}

// The n-th request that leaves has the draws of the n-th in the simulator,
// whichever connection it takes and also after one broke.
func TestRequestsHaveTheDrawsOfTheSimulator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breakEvery int
		config     func(url string) Config
	}{
		"open, one connection":    {0, func(url string) Config { return open(url, 100, 1) }},
		"open, no limit":          {0, func(url string) Config { return open(url, 100, 0) }},
		"open, broken":            {4, func(url string) Config { return open(url, 100, 0) }},
		"wrk2, one connection":    {0, func(url string) Config { return wrk2(url, 100, 1, 1) }},
		"wrk2, eight connections": {0, func(url string) Config { return wrk2(url, 200, 4, 10) }},
		"wrk2, broken":            {4, func(url string) Config { return wrk2(url, 100, 2, 4) }},
		"closed loop": {0, func(url string) Config {
			return Config{Target: url, ClosedLoop: true, Duration: 50 * time.Millisecond, Load: workloads.Load{Connections: 3}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startDraws(t, c.breakEvery)
			config := c.config(s.URL)
			config.Duration, config.Draws, config.Seed, config.Run = config.Duration/2, true, 12345, workloads.MeasuredRun(true)
			r, err := Run(t.Context(), config)
			require.NoError(t, err)
			s.Close() // waits for what was cut off
			require.Greater(t, len(s.seen), 20)
			require.Equal(t, c.breakEvery > 0, r.Failed > 0)
			want := simulated(12345, 3, len(s.seen))
			if r.Connections == 1 {
				require.Equal(t, want, s.seen)
			} else { // two that leave together may arrive in either order
				require.ElementsMatch(t, want, s.seen)
			}
		})
	}
}

// Requests of two runs of a trial, or of two trials, share no draws.
func TestRunsHaveDrawsOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range []struct{ seed, run uint64 }{{1, workloads.WarmupRun}, {1, workloads.MeasuredRun(true)}, {2, workloads.WarmupRun}} {
		s := startDraws(t, 0)
		config := open(s.URL, 100, 1)
		config.Duration, config.Draws, config.Seed, config.Run = 100*time.Millisecond, true, c.seed, c.run
		_, err := Run(t.Context(), config)
		require.NoError(t, err)
		s.Close()
		require.Len(t, s.seen, 9)
		for _, seed := range s.seen {
			seen[seed] = true
		}
	}
	require.Len(t, seen, 27)
}

// A request that the client gave up before it could leave keeps its number.
func TestRequestsGivenUpHaveANumber(t *testing.T) {
	t.Parallel()
	r := &run{config: Config{Seed: 7, Run: 1, Load: workloads.Load{Timeout: workloads.Duration(time.Millisecond)}}}
	r.recorder = newRecorder(r.config)
	load := workloads.Load{Schedule: "wrk2", Threads: 1, Connections: 1}
	p := &pacedConn{run: r, slot: &slot{}, pacer: workloads.NewConnections(load, 100)[0]}
	require.False(t, p.depart(5*time.Millisecond), "due at 0")
	require.True(t, p.depart(10*time.Millisecond))
	require.Equal(t, workloads.RequestDraws(7, 1, 2).Seed(), p.slot.request.draw)
}
