package push

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what takes milliseconds on an idle machine.
const patience = 20 * time.Second

// receiver hands over each message that comes. It ends a stream after so many;
// 0 = never.
type receiver struct {
	metrics.UnimplementedMetricsServiceServer
	got       chan *metrics.StreamMetricsMessage
	endsAfter int
}

func (r *receiver) StreamMetrics(in metrics.MetricsService_StreamMetricsServer) error {
	for n := 1; ; n++ {
		m, err := in.Recv()
		if err != nil {
			return err
		}
		select {
		case r.got <- m:
		case <-in.Context().Done():
			return in.Context().Err()
		}
		if n == r.endsAfter {
			return in.SendAndClose(&metrics.StreamMetricsResponse{})
		}
	}
}

// receive serves r until the test ends, or the returned function is called.
func receive(t *testing.T, r *receiver, addr string) (at string, stop func()) {
	r.got = make(chan *metrics.StreamMetricsMessage, 100)
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	metrics.RegisterMetricsServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends by Stop
	stop = func() { server.Stop(); serving.Wait() }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// next waits for a message.
func (r *receiver) next(t *testing.T) *metrics.StreamMetricsMessage {
	select {
	case m := <-r.got:
		return m
	case <-time.After(patience):
		require.FailNow(t, "no message came")
		return nil
	}
}

// run pushes until the test ends.
func run(t *testing.T, o Options) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
}

// busy is a service that has answered 2 of 5 requests.
func busy() Values {
	return Values{
		Inbound:     Requests{Active: 3, Begun: 5, Ended: 2, Time: 30 * time.Millisecond},
		Connections: 1, Accepted: 4,
	}
}

// names are those of the families, with their types.
func names(m *metrics.StreamMetricsMessage) []string {
	var all []string
	for _, f := range m.GetEnvoyMetrics() {
		all = append(all, f.GetName()+" "+f.GetType().String())
	}
	return all
}

func TestNodeIsNamedInTheFirstMessageOnly(t *testing.T) {
	r := &receiver{}
	addr, _ := receive(t, r, "127.0.0.1:0")
	run(t, Options{Target: addr, Pod: "web-0", Namespace: "shop", IP: "10.1.2.3", Every: time.Millisecond, Read: busy})
	node := r.next(t).GetIdentifier().GetNode()
	require.Equal(t, "sidecar~10.1.2.3~web-0.shop~shop.svc.cluster.local", node.GetId())
	require.Equal(t, "web-0", node.GetMetadata().GetFields()["NAME"].GetStringValue())
	require.Equal(t, "shop", node.GetMetadata().GetFields()["NAMESPACE"].GetStringValue())
	require.Equal(t, "NONE", node.GetMetadata().GetFields()["INTERCEPTION_MODE"].GetStringValue())
	for range 3 {
		require.Nil(t, r.next(t).GetIdentifier())
	}
}

func TestFamiliesAreNamedAsIstioDoes(t *testing.T) {
	s := source{opts: Options{Pod: "web-0", Read: busy}.withDefaults()}
	s.opts.Now = func() time.Time { return time.UnixMilli(1234) }
	m := &metrics.StreamMetricsMessage{EnvoyMetrics: s.families(busy())}
	require.Equal(t, []string{
		"http.inbound_0.0.0.0_8080;.downstream_rq_total COUNTER", "http.inbound_0.0.0.0_8080;.downstream_rq_active GAUGE",
		"listener.0.0.0.0_8080.downstream_cx_active GAUGE",
		"http.inbound_0.0.0.0_8080;.downstream_rq_time SUMMARY", "http.inbound_0.0.0.0_8080;.downstream_rq_time HISTOGRAM",
	}, names(m))
	for _, f := range m.GetEnvoyMetrics() {
		require.Len(t, f.GetMetric(), 1)
		require.EqualValues(t, 1234, f.GetMetric()[0].GetTimestampMs())
	}
	require.Equal(t, 3.0, m.EnvoyMetrics[1].GetMetric()[0].GetGauge().GetValue())
	require.Equal(t, 1.0, m.EnvoyMetrics[2].GetMetric()[0].GetGauge().GetValue())
}

func TestNamesOfOptions(t *testing.T) {
	old := source{opts: Options{Undelimited: true, Port: 80, Type: Router}.withDefaults()}
	require.Equal(t, []string{
		"http.outbound_0.0.0.0_80.downstream_rq_total COUNTER", "http.outbound_0.0.0.0_80.downstream_rq_active GAUGE",
	}, names(&metrics.StreamMetricsMessage{EnvoyMetrics: old.families(Values{Outbound: Requests{Active: 1, Begun: 1}})}))
	tagged := source{opts: Options{TagsAsLabels: true, Noise: 20}.withDefaults()}
	families := tagged.families(Values{Connections: 2, Accepted: 2})
	require.Equal(t, "listener.downstream_cx_active", families[0].GetName())
	require.Equal(t, "0.0.0.0_8080", families[0].GetMetric()[0].GetLabel()[0].GetValue())
	require.Len(t, families, 1+20)
	require.Equal(t, Noise[0], families[1].GetName())
}

// TestGaugesAppearWithTheirFirstUse, and stay.
func TestGaugesAppearWithTheirFirstUse(t *testing.T) {
	s := source{opts: Options{}.withDefaults()}
	require.Empty(t, s.families(Values{}))
	require.Len(t, s.families(Values{Accepted: 1}), 1)
	require.Len(t, s.families(Values{Accepted: 1, Inbound: Requests{Begun: 1, Active: 1}}), 3)
	require.Len(t, s.families(Values{Accepted: 1, Inbound: Requests{Begun: 1, Ended: 1}}), 5)
}

// TestHistogramIsOfTheInterval: 2 requests of 30 ms, then none, then one of
// 5 ms.
func TestHistogramIsOfTheInterval(t *testing.T) {
	s := source{opts: Options{}.withDefaults()}
	v := Values{Inbound: Requests{Begun: 9, Ended: 2, Time: 30 * time.Millisecond}}
	last := func() *dto.Histogram {
		families := s.families(v)
		return families[len(families)-1].GetMetric()[0].GetHistogram()
	}
	h := last()
	require.EqualValues(t, 2, h.GetSampleCount())
	require.Equal(t, 30.0, h.GetSampleSum())
	require.Zero(t, last().GetSampleCount())
	v.Inbound.Ended, v.Inbound.Time = 3, 35*time.Millisecond
	h = last()
	require.EqualValues(t, 1, h.GetSampleCount())
	require.InDelta(t, 5.0, h.GetSampleSum(), 1e-9)
}

// TestBatches are what envoy pull 41831 has added: one timestamp, several
// messages.
func TestBatches(t *testing.T) {
	r := &receiver{}
	addr, _ := receive(t, r, "127.0.0.1:0")
	run(t, Options{Target: addr, Pod: "web-0", Every: time.Hour, First: time.Millisecond, BatchSize: 2, Read: busy})
	var sizes []int
	var millis []int64
	for range 3 {
		m := r.next(t)
		sizes = append(sizes, len(m.GetEnvoyMetrics()))
		millis = append(millis, m.GetEnvoyMetrics()[0].GetMetric()[0].GetTimestampMs())
	}
	require.Equal(t, []int{2, 2, 1}, sizes)
	require.Equal(t, []int64{millis[0], millis[0], millis[0]}, millis)
}

// TestUnusedProxyIsHeard: its messages are empty, and come.
func TestUnusedProxyIsHeard(t *testing.T) {
	r := &receiver{}
	addr, _ := receive(t, r, "127.0.0.1:0")
	run(t, Options{Target: addr, Pod: "web-0", Every: time.Millisecond, Read: func() Values { return Values{} }})
	require.NotNil(t, r.next(t).GetIdentifier())
	require.Empty(t, r.next(t).GetEnvoyMetrics())
}

// TestStreamIsOpenedAgain after the receiver has ended it, and names the node
// again.
func TestStreamIsOpenedAgain(t *testing.T) {
	r := &receiver{endsAfter: 1}
	addr, _ := receive(t, r, "127.0.0.1:0")
	run(t, Options{Target: addr, Pod: "web-0", Every: 50 * time.Millisecond, Read: busy})
	for range 3 {
		require.Equal(t, "sidecar~127.0.0.1~web-0.default~default.svc.cluster.local", r.next(t).GetIdentifier().GetNode().GetId())
	}
}

// TestReceiverThatComesAndGoes is found when it is there, and its loss is
// logged once.
func TestReceiverThatComesAndGoes(t *testing.T) {
	first := &receiver{}
	addr, stop := receive(t, first, "127.0.0.1:0")
	var log lines
	run(t, Options{Target: addr, Pod: "web-0", Every: 20 * time.Millisecond, Read: busy, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NotNil(t, first.next(t).GetIdentifier())
	stop()
	require.Eventually(t, func() bool { return log.count("metrics are not pushed") == 1 }, patience, time.Millisecond)
	second := &receiver{}
	receive(t, second, addr)
	require.NotNil(t, second.next(t).GetIdentifier())
	require.Eventually(t, func() bool { return log.count("metrics are pushed again") >= 1 }, patience, time.Millisecond)
	require.Equal(t, log.count("pushed again"), log.count("not pushed"))
}

// lines is a log that may be read meanwhile.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func TestOptionsNameEveryFault(t *testing.T) {
	err := Run(t.Context(), Options{Type: "ztunnel", Every: -1, First: -2, Port: -3, BatchSize: -4, Noise: -5})
	for _, want := range []string{
		"Target: found none", "Pod: found none", "Read: found none", `Type: found "ztunnel"`, "Every: found -1", "First: found -2", "Port: found -3",
		"BatchSize: found -4", "Noise: found -5",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestMeter(t *testing.T) {
	var m Meter
	require.Zero(t, m.Read())
	m.Begin()
	m.Begin()
	m.End(time.Second)
	require.Equal(t, Requests{Active: 1, Begun: 2, Ended: 1, Time: time.Second}, m.Read())
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 1000 {
				m.Begin()
				m.End(time.Millisecond)
			}
		})
	}
	for range 1000 {
		require.GreaterOrEqual(t, m.Read().Active, int64(1))
	}
	work.Wait()
	require.Equal(t, Requests{Active: 1, Begun: 4002, Ended: 4001, Time: 5 * time.Second}, m.Read())
}
