package loadgen

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"heartbed/workloads"
	"heartbed/workloads/loadgen/loadgentest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func server(t *testing.T, s loadgentest.Stall) *loadgentest.Server {
	t.Helper()
	srv, err := loadgentest.Start(s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Close()) })
	return srv
}

func open(url string, rps float64, connections int) Config {
	return Config{
		Target: url, RPS: rps, Duration: 500 * time.Millisecond, Seed: 1,
		Load: workloads.Load{Schedule: "open", Arrivals: "even", Connections: connections},
	}
}

func wrk2(url string, rps float64, threads, connections int) Config {
	return Config{
		Target: url, RPS: rps, Duration: 500 * time.Millisecond, Seed: 1,
		Load: workloads.Load{Schedule: "wrk2", Threads: threads, Connections: connections},
	}
}

// balanced checks what holds for every result.
func balanced(t *testing.T, r Result) {
	t.Helper()
	require.Equal(t, r.Offered, r.Answered+r.Failed+r.TimedOut+r.CutOff+r.Unsent)
	require.Equal(t, r.Failed, r.Errors.Connect+r.Errors.Read+r.Errors.Write+r.Errors.Status)
	require.Equal(t, r.Answered, r.Latency.TotalCount()+r.OverRange)
	for _, n := range []int64{r.Answered, r.Failed, r.TimedOut, r.CutOff, r.Unsent} {
		require.GreaterOrEqual(t, n, int64(0))
	}
}

func TestOpenSchedule(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Service: 10 * time.Millisecond})
	for name, c := range map[string]Config{
		"unlimited": open(srv.URL, 200, 0), "limited": open(srv.URL, 200, 20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Drop = 100 * time.Millisecond
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			balanced(t, r)
			// Due times are 5 ms, 10 ms, ...; those in [100 ms, 500 ms) count.
			require.Equal(t, int64(80), r.Offered)
			require.Equal(t, int64(80), r.Answered)
			require.Equal(t, int64(99), r.Requests)
			require.Equal(t, 400*time.Millisecond, r.Measured)
			require.InDelta(t, 200, r.AchievedRPS, 1e-9)
			require.GreaterOrEqual(t, r.LatencyMeanUs, 10_000.0)
			require.Less(t, r.Latency.ValueAtQuantile(50), int64(20_000))
			require.InEpsilon(t, r.OccupiedMean, r.OutstandingMean, 0.01, "Little's law")
			require.Positive(t, r.Lateness.TotalCount())
		})
	}
}

// A server that answers one request in 50 ms is offered one every 10 ms on one
// connection: the wait for the connection is part of the latency.
func TestOpenScheduleWaitsForAConnection(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Service: 50 * time.Millisecond})
	c := open(srv.URL, 100, 1)
	c.Duration = 200 * time.Millisecond
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	balanced(t, r)
	require.Equal(t, int64(19), r.Answered, "the run waits for all answers")
	require.Equal(t, 1, r.Connections)
	require.Greater(t, r.Latency.Max(), int64(19*50_000-190_000), "the last waits for 18 others")
	require.Equal(t, r.Offered, r.Lateness.TotalCount())
	require.Less(t, r.Lateness.ValueAtQuantile(50), int64(20_000), "waiting is no lateness of the generator")
	require.InDelta(t, 1, r.OutstandingMean, 0.1, "one at a time; those that wait have not left")
}

func TestWrk2Schedule(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Service: 5 * time.Millisecond})
	r, err := Run(t.Context(), wrk2(srv.URL, 200, 4, 10)) // 8 connections: the rest of the division is dropped
	require.NoError(t, err)
	balanced(t, r)
	require.Equal(t, 8, r.Connections)
	require.Equal(t, int64(104), r.Offered, "each at 0, 40, ... 480 ms")
	require.GreaterOrEqual(t, r.Answered, int64(88), "all but what is outstanding at the end")
	require.LessOrEqual(t, r.CutOff, int64(8))
	require.GreaterOrEqual(t, r.LatencyMeanUs, 5_000.0)
	require.Positive(t, r.Lateness.TotalCount())
}

// A connection with a request outstanding sends no other: what is due
// meanwhile has not left when the run ends.
func TestWrk2CountsWhatItCouldNotSend(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Service: 150 * time.Millisecond})
	r, err := Run(t.Context(), wrk2(srv.URL, 100, 1, 2))
	require.NoError(t, err)
	balanced(t, r)
	require.Equal(t, int64(50), r.Offered)
	require.LessOrEqual(t, r.Answered, int64(6))
	require.GreaterOrEqual(t, r.Answered, int64(2))
	require.LessOrEqual(t, r.CutOff, int64(2))
	require.GreaterOrEqual(t, r.Unsent, int64(40))
}

func TestClosedLoop(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{})
	c := Config{Target: srv.URL, ClosedLoop: true, Duration: 300 * time.Millisecond, Load: workloads.Load{Connections: 4}}
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	balanced(t, r)
	require.Greater(t, r.Answered, int64(300))
	require.LessOrEqual(t, r.CutOff, int64(4))
	require.Zero(t, r.Unsent)
	require.InDelta(t, 4, r.OutstandingMean, 0.5)
}

func TestTimeoutCountsFromTheDueTime(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Length: time.Hour, Every: time.Hour})
	for name, c := range map[string]Config{
		"open": open(srv.URL, 100, 0), "open limited": open(srv.URL, 100, 3), "wrk2": wrk2(srv.URL, 100, 1, 3),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.Load.Timeout = workloads.Duration(100 * time.Millisecond)
			start := time.Now()
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			balanced(t, r)
			require.Zero(t, r.Answered+r.Failed)
			require.Less(t, time.Since(start), time.Second)
			require.GreaterOrEqual(t, r.TimedOut, int64(30))
			if name != "wrk2" {
				require.Equal(t, r.Offered, r.TimedOut)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/break", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	mux.HandleFunc("/close", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	for _, schedule := range []func(path string) Config{
		func(path string) Config { return open(srv.URL+path, 100, 2) },
		func(path string) Config { return wrk2(srv.URL+path, 100, 1, 2) },
	} {
		for path, check := range map[string]func(t *testing.T, r Result){
			"/status": func(t *testing.T, r Result) {
				require.InDelta(t, r.Answered, r.Errors.Status, 2)
				require.Contains(t, r.Faults[0], "status 503")
			},
			"/break": func(t *testing.T, r Result) { require.Equal(t, r.Failed, r.Errors.Read); require.Zero(t, r.Answered) },
			"/close": func(t *testing.T, r Result) { require.Zero(t, r.Failed); require.Positive(t, r.Answered) },
		} {
			c := schedule(path)
			t.Run(c.Load.Schedule+path, func(t *testing.T) {
				t.Parallel()
				r, err := Run(t.Context(), c)
				require.NoError(t, err)
				balanced(t, r)
				require.GreaterOrEqual(t, r.Answered+r.Failed, int64(45))
				check(t, r)
			})
		}
	}
}

// A server that closes idle connections costs a new connection, not a request.
func TestIdleConnectionsThatTheServerCloses(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.IdleTimeout = 20 * time.Millisecond
	srv.Start()
	t.Cleanup(srv.Close)
	for _, c := range []Config{open(srv.URL, 20, 0), wrk2(srv.URL, 20, 1, 1)} {
		t.Run(c.Load.Schedule, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			balanced(t, r)
			require.Zero(t, r.Failed, r.Faults)
			require.GreaterOrEqual(t, r.Answered, int64(6))
		})
	}
}

// A target that goes away in the middle of a run fails the requests due from
// then on, one by one.
func TestTargetThatGoesAway(t *testing.T) {
	t.Parallel()
	for name, schedule := range map[string]func(url string) Config{
		"open":    func(url string) Config { return open(url, 100, 0) },
		"limited": func(url string) Config { return open(url, 100, 2) },
		"wrk2":    func(url string) Config { return wrk2(url, 100, 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, err := loadgentest.Start(loadgentest.Stall{})
			require.NoError(t, err)
			time.AfterFunc(250*time.Millisecond, func() { srv.Close() })
			r, err := Run(t.Context(), schedule(srv.URL))
			require.NoError(t, err)
			balanced(t, r)
			require.InDelta(t, 25, r.Answered, 10)
			require.GreaterOrEqual(t, r.Errors.Connect, int64(10))
			require.Contains(t, r.Faults[0], "refused")
		})
	}
}

func TestTargetThatIsNotThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, scheme := range []string{"http", "grpc"} {
		_, err = Run(t.Context(), open(scheme+"://"+l.Addr().String(), 10, 0))
		require.ErrorContains(t, err, "connect to "+scheme)
	}
}

func TestInterruptedRunGivesWhatWasMeasured(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Service: time.Millisecond})
	for _, c := range []Config{open(srv.URL, 100, 0), wrk2(srv.URL, 100, 1, 4)} {
		t.Run(c.Load.Schedule, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			c.Duration = time.Minute
			r, err := Run(ctx, c)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			balanced(t, r)
			require.InDelta(t, 30, r.Offered, 5)
			require.InDelta(t, 30, r.Answered, 6)
			require.InDelta(t, 0.3, r.Measured.Seconds(), 0.1)
			require.InDelta(t, 100, r.OfferedRPS, 15)
		})
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{Service: time.Millisecond})
	c := open(srv.URL, 200, 0)
	c.ProgressEvery = 50 * time.Millisecond
	var reports []Progress
	c.OnProgress = func(p Progress) { reports = append(reports, p) }
	_, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(reports), 5)
	last := reports[len(reports)-1]
	mean := 0.0
	for _, p := range reports {
		mean += p.RPS / float64(len(reports))
	}
	require.InDelta(t, 200, mean, 30)
	require.Positive(t, last.P99)
	require.Greater(t, last.Sent, reports[0].Sent)
	require.Equal(t, c.Duration, last.Duration)
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Config{Target: "ftp//x", Load: workloads.Load{Schedule: "often"}, RPS: -1, Drop: -1})
	require.ErrorIs(t, err, ErrConfig)
	for _, want := range []string{"target", "schedule", "rate", "duration", "drop"} {
		require.ErrorContains(t, err, want)
	}
	_, err = Run(t.Context(), Config{Target: "https://x/", ClosedLoop: true, Duration: 1})
	require.ErrorContains(t, err, "TLS")
	require.ErrorContains(t, err, "connections")
}

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]target{
		"http://a":              {address: "a:80", host: "a", path: "/"},
		"http://a:8080/x?y=1":   {address: "a:8080", host: "a:8080", path: "/x?y=1"},
		"http://[::1]:80/":      {address: "[::1]:80", host: "[::1]:80", path: "/"},
		"grpc://10.0.0.1:50051": {grpc: true, address: "passthrough:///10.0.0.1:50051"},
		"xds:///a":              {grpc: true, address: "xds:///a"},
	} {
		got, err := parseTarget(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "a:80", "http://", "grpc://a", "https://a", "http://a b/"} {
		_, err := parseTarget(text)
		require.ErrorIs(t, err, ErrConfig, text)
	}
}

func TestDialHook(t *testing.T) {
	t.Parallel()
	srv := server(t, loadgentest.Stall{})
	c := open("http://nowhere.invalid/", 100, 0)
	c.Duration = 100 * time.Millisecond
	c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "nowhere.invalid:80" {
			return nil, errors.New("wrong address")
		}
		return new(net.Dialer).DialContext(ctx, network, srv.Address)
	}
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, int64(9), r.Answered)
}
