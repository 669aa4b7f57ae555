package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/workloads"
)

// helpers are what the test binary is besides, by environment variable.
var helpers = map[string]func(value string) error{}

func TestMain(m *testing.M) {
	for variable, help := range helpers {
		value := os.Getenv(variable)
		if value == "" {
			continue
		}
		if err := help(value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// chain is an application a -> b with the given steps of b.
func chain(steps ...workloads.Step) workloads.Application {
	return workloads.Application{
		Name: "chain", Entry: "a",
		Components: []workloads.Component{
			{Name: "a", Replicas: 1, Steps: []workloads.Step{{CPUMs: 1}, {Call: []string{"b"}}}},
			{Name: "b", Replicas: 1, Steps: steps},
		},
		Server: workloads.Server{Threads: 1},
	}
}

// burns is the step of so many ms of CPU time.
func burns(ms float64) workloads.Step { return workloads.Step{CPUMs: ms} }

// running is a replica served in this process.
type running struct {
	*Service
	stop  context.CancelFunc
	ended chan error
}

// start serves a replica until the test ends; the test may end it before.
func start(t testing.TB, cfg Config, dial ...grpc.DialOption) *running {
	if cfg.Replica == "" {
		cfg.Replica = cfg.Component + "1"
	}
	cfg.Listen, cfg.Metrics = "127.0.0.1:0", "127.0.0.1:0"
	s, err := New(cfg, dial...)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Service: s, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- s.Run(ctx); close(r.ended) }()
	t.Cleanup(func() { stop(); <-r.ended }) // tests that end it themselves have looked at the error
	require.Eventually(t, func() bool { return r.get(t, "/ready") == http.StatusOK }, 5*time.Second, time.Millisecond)
	return r
}

// get asks the metrics port and returns the HTTP code, 0 without an answer.
func (r *running) get(t testing.TB, path string) int {
	resp, err := httpClient(t).Get("http://" + r.MetricsAddr().String() + path)
	if err != nil {
		return 0
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// families scrapes /metrics.
func (r *running) families(t *testing.T) map[string]*dto.MetricFamily {
	resp, err := httpClient(t).Get("http://" + r.MetricsAddr().String() + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	return families
}

func httpClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// dialTo connects a client to a replica.
func dialTo(t *testing.T, r *running) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///"+r.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func call(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, Method, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{})
}

func TestCallGoesAlongTheGraph(t *testing.T) {
	app := chain(burns(1))
	b := start(t, Config{Component: "b", Node: "n2", App: app})
	a := start(t, Config{Component: "a", Node: "n1", App: app, Targets: map[string]string{"b": "passthrough:///" + b.Addr().String()}})
	conn := dialTo(t, a)
	for range 3 {
		require.NoError(t, call(t.Context(), conn))
	}

	got := b.families(t)
	requests := got["heartbed_requests_total"].GetMetric()
	require.Len(t, requests, 1)
	require.Equal(t, 3.0, requests[0].GetCounter().GetValue())
	require.Equal(t, map[string]string{
		"component": "b", "replica": "b1", "node": "n2", "caller_replica": "a1", "code": "OK",
	}, labels(requests[0]))
	require.Zero(t, got["heartbed_in_flight"].GetMetric()[0].GetGauge().GetValue())
	require.Greater(t, got["heartbed_cpu_seconds_total"].GetMetric()[0].GetCounter().GetValue(), 0.006)
	duration := got["heartbed_request_duration_seconds"].GetMetric()[0].GetHistogram()
	require.EqualValues(t, 3, duration.GetSampleCount())
	require.GreaterOrEqual(t, duration.GetSampleSum(), 0.003)
}

func labels(m *dto.Metric) map[string]string {
	found := map[string]string{}
	for _, l := range m.GetLabel() {
		found[l.GetName()] = l.GetValue()
	}
	return found
}

// TestDurationIsANativeHistogram reads the protobuf format, the only one that
// carries native histograms.
func TestDurationIsANativeHistogram(t *testing.T) {
	b := start(t, Config{Component: "b", App: chain(burns(1))})
	require.NoError(t, call(t.Context(), dialTo(t, b)))
	req, err := http.NewRequest(http.MethodGet, "http://"+b.MetricsAddr().String()+"/metrics", nil)
	require.NoError(t, err)
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	req.Header.Set("Accept", string(format))
	resp, err := httpClient(t).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	decoder := expfmt.NewDecoder(resp.Body, format)
	for {
		var family dto.MetricFamily
		require.NoError(t, decoder.Decode(&family), "the family is missing")
		if family.GetName() == "heartbed_request_duration_seconds" {
			h := family.GetMetric()[0].GetHistogram()
			require.NotEmpty(t, h.GetPositiveSpan())
			require.Empty(t, h.GetBucket(), "classic buckets")
			return
		}
	}
}

// TestDrawsAgreeWithTheSimulator follows the seeds down the call tree: b must
// burn what the draws of its place in the tree say, which the gateway shifts.
func TestDrawsAgreeWithTheSimulator(t *testing.T) {
	for gateway, place := range map[bool]int{true: 2, false: 1} {
		seen := make(chan string, 1)
		a := start(t, Config{Component: "a", App: chain(burns(1)), BehindGateway: gateway, Targets: map[string]string{
			"b": answering(t, func(md metadata.MD) error { seen <- md.Get(CallerKey)[0] + " " + md.Get(DrawKey)[0]; return nil }),
		}})
		ctx := metadata.AppendToOutgoingContext(t.Context(), DrawKey, "17")
		require.NoError(t, call(ctx, dialTo(t, a)))
		require.Equal(t, fmt.Sprintf("a1 %d", workloads.NewDraws(17).Child(place, 1, 0).Seed()), <-seen) // the call is a's step 1
	}
}

func TestSeedThatIsNoNumberIsRefused(t *testing.T) {
	b := start(t, Config{Component: "b", App: chain(burns(1))})
	ctx := metadata.AppendToOutgoingContext(t.Context(), DrawKey, "-1")
	require.Equal(t, codes.InvalidArgument, status.Code(call(ctx, dialTo(t, b))))
}

// TestQueueIsBounded holds a replica busy: of requests beyond the bound each
// is refused at once.
func TestQueueIsBounded(t *testing.T) {
	app := chain(burns(30))
	app.Server.Slots = 1
	b := start(t, Config{Component: "b", App: app, Queue: 3})
	conn := dialTo(t, b)
	results := make(chan error, 8)
	for range 8 {
		go func() { results <- call(t.Context(), conn) }()
	}
	count := map[codes.Code]int{}
	for range 8 {
		count[status.Code(<-results)]++
	}
	require.Equal(t, map[codes.Code]int{codes.OK: 3, codes.ResourceExhausted: 5}, count)
}

func TestDeadlineEndsARequest(t *testing.T) {
	b := start(t, Config{Component: "b", App: chain(burns(10_000)), Deadline: 50 * time.Millisecond})
	started := time.Now()
	require.Equal(t, codes.DeadlineExceeded, status.Code(call(t.Context(), dialTo(t, b))))
	require.Less(t, time.Since(started), 9*time.Second)
}

// TestDrainLosesNoRequest ends a replica with requests in service and in the
// queue: all are answered, and it is not ready meanwhile.
func TestDrainLosesNoRequest(t *testing.T) {
	app := chain(burns(10))
	app.Server.Slots = 1
	b := start(t, Config{Component: "b", App: app})
	conn := dialTo(t, b)
	results := make(chan error, 5)
	for range 5 {
		go func() { results <- call(t.Context(), conn) }()
	}
	require.Eventually(t, func() bool { return b.replica.metrics.inside.Load() == 5 }, 5*time.Second, time.Millisecond)
	b.stop()
	require.Eventually(t, func() bool { return b.get(t, "/ready") == http.StatusServiceUnavailable }, time.Second, time.Millisecond)
	require.NoError(t, <-b.ended)
	for range 5 {
		require.NoError(t, <-results)
	}
	require.Equal(t, codes.Unavailable, status.Code(call(t.Context(), conn)), "it takes no more requests")
}

func TestDrainIsBounded(t *testing.T) {
	for _, gateway := range []bool{false, true} {
		t.Run(fmt.Sprintf("gateway=%v", gateway), func(t *testing.T) {
			app := chain(burns(30_000))
			app.Entry = "b"
			b := start(t, Config{Component: "b", App: app, Drain: 50 * time.Millisecond})
			result := make(chan error, 1)
			last := b
			if gateway {
				last = start(t, Config{Component: "gateway", App: app, Gateway: true, Drain: 50 * time.Millisecond,
					Targets: map[string]string{"b": "passthrough:///" + b.Addr().String()}})
				client := httpClient(t)
				go func() {
					resp, err := client.Get("http://" + last.Addr().String())
					if err == nil {
						err = resp.Body.Close()
					}
					result <- err
				}()
			} else {
				conn := dialTo(t, b)
				go func() { result <- call(t.Context(), conn) }()
			}
			require.Eventually(t, func() bool { return b.replica.metrics.inside.Load() == 1 }, 5*time.Second, time.Millisecond)
			last.stop()
			require.ErrorContains(t, <-last.ended, "1 requests cut off after 50ms")
			<-result
		})
	}
}

func TestGateway(t *testing.T) {
	app := chain(burns(1))
	app.Entry = "b"
	b := start(t, Config{Component: "b", App: app})
	g := start(t, Config{Component: "gateway", App: app, Gateway: true,
		Targets: map[string]string{"b": "passthrough:///" + b.Addr().String()}})
	client := httpClient(t)
	get := func(method, draw string) (int, string) {
		req, err := http.NewRequest(method, "http://"+g.Addr().String()+"/some/page", nil)
		require.NoError(t, err)
		if draw != "" {
			req.Header.Set("X-Draw", draw)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, strings.TrimSpace(string(body))
	}
	code, _ := get(http.MethodGet, "5")
	require.Equal(t, http.StatusOK, code)
	code, body := get(http.MethodGet, "five")
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, `found "five"`)
	code, _ = get(http.MethodPost, "")
	require.Equal(t, http.StatusMethodNotAllowed, code)

	require.Equal(t, "gateway1", labels(b.families(t)["heartbed_requests_total"].GetMetric()[0])["caller_replica"])
	b.stop()
	require.NoError(t, <-b.ended)
	code, body = get(http.MethodGet, "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "Unavailable: b: ")
}

func TestGatewaySaysWhatFailed(t *testing.T) {
	for code, want := range map[codes.Code]int{
		codes.ResourceExhausted: 503, codes.Unavailable: 503, codes.DeadlineExceeded: 504,
		codes.Internal: 502, codes.Unknown: 502, codes.InvalidArgument: 400,
	} {
		require.Equal(t, want, httpCode(code), code.String())
	}
}

// TestFirstCallWaitsForItsCallee starts the caller first: before the first
// success Unavailable is retried, after it no more.
func TestFirstCallWaitsForItsCallee(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	where := l.Addr().String()
	require.NoError(t, l.Close()) // nobody listens there now
	app := chain(burns(1))
	a := start(t, Config{Component: "a", App: app, Targets: map[string]string{"b": "passthrough:///" + where}})
	conn := dialTo(t, a)
	result := make(chan error, 1)
	go func() { result <- call(t.Context(), conn) }()
	time.Sleep(150 * time.Millisecond)
	require.Empty(t, result)
	late, err := New(Config{Replica: "b1", Component: "b", App: app, Listen: where})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- late.Run(ctx) }()
	require.NoError(t, <-result)
	stop()
	require.NoError(t, <-ended)
	started := time.Now()
	require.Equal(t, codes.Unavailable, status.Code(call(t.Context(), conn)))
	require.Less(t, time.Since(started), 5*time.Second)
}

func TestPortTakenIsAnError(t *testing.T) {
	b := start(t, Config{Component: "b", App: chain(burns(1))})
	_, err := New(Config{Replica: "b2", Component: "b", App: chain(burns(1)), Listen: b.Addr().String()})
	require.ErrorContains(t, err, "start replica b2: ")
}
