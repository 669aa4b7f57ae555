package sink

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"

	"heartbed/activescale/store"
	"heartbed/workloads/push"
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

// patience is for what takes milliseconds on an idle machine.
const patience = 20 * time.Second

// receiver is a server on localhost.
type receiver struct {
	*Server
	t     testing.TB
	addr  string
	store store.Store
	grpc  *grpc.Server
}

// receive starts a server for the test. Without a store it has one of its own.
func receive(t testing.TB, o Options, transport Transport) *receiver {
	if o.Store == nil {
		o.Store = store.NewLocal(time.Minute)
	}
	s, err := New(o)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &receiver{s, t, l.Addr().String(), o.Store, grpc.NewServer(ServerOptions(transport)...)}
	s.Register(r.grpc)
	var serving sync.WaitGroup
	serving.Go(func() { _ = r.grpc.Serve(l) }) // ends by Stop
	t.Cleanup(func() { r.grpc.Stop(); serving.Wait() })
	return r
}

// sample is what the store has of a pod; nil = nothing.
func (r *receiver) sample(pod store.Pod) *store.Sample {
	got, err := r.store.Get(context.Background(), []store.Pod{pod})
	require.NoError(r.t, err)
	if s, ok := got[pod]; ok {
		return &s
	}
	return nil
}

// has waits until a metric of the pod has the value.
func (r *receiver) has(pod store.Pod, metric string, want float64) {
	require.Eventually(r.t, func() bool {
		s := r.sample(pod)
		if s == nil {
			return false
		}
		got, ok := s.Values[metric]
		return ok && got == want
	}, patience, time.Millisecond)
}

// counted waits until a counter has reached the value.
func (r *receiver) counted(c prometheus.Counter, want float64) {
	require.Eventually(r.t, func() bool { return testutil.ToFloat64(c) == want }, patience, time.Millisecond)
}

// client opens a stream by hand.
func client(t testing.TB, addr string, dial ...grpc.DialOption) metrics.MetricsService_StreamMetricsClient {
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, dial...)...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := metrics.NewMetricsServiceClient(conn).StreamMetrics(ctx)
	require.NoError(t, err)
	return stream
}

// named is a first message.
func named(t testing.TB, pod store.Pod, families ...*dto.MetricFamily) *metrics.StreamMetricsMessage {
	m := message(families...)
	m.Identifier = &metrics.StreamMetricsMessage_Identifier{Node: node(t, "x", map[string]any{"NAME": pod.Name, "NAMESPACE": pod.Namespace})}
	return m
}

// ends gives the code with which the receiver ends a stream.
func ends(stream metrics.MetricsService_StreamMetricsClient) codes.Code {
	return status.Code(stream.RecvMsg(&metrics.StreamMetricsResponse{}))
}

// pushing runs a proxy of the pod until the returned function is called.
func pushing(t testing.TB, o push.Options) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- push.Run(ctx, o) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); require.NoError(t, <-done) }) }
	t.Cleanup(stop)
	return stop
}

// TestPushed has proxies of all kinds push what the store must then have.
func TestPushed(t *testing.T) {
	values := push.Values{
		Inbound:     push.Requests{Active: 3, Begun: 10, Ended: 7, Time: 14 * time.Second},
		Outbound:    push.Requests{Active: 2, Begun: 4, Ended: 2, Time: time.Second},
		Connections: 5, Accepted: 6,
	}
	all := map[string]float64{store.InboundActiveRequests: 3, store.OutboundActiveRequests: 2, store.ActiveConnections: 5}
	r := receive(t, Options{}, Transport{})
	for name, c := range map[string]struct {
		o    push.Options
		v    push.Values
		want map[string]float64
	}{
		"sidecar":     {push.Options{}, values, all},
		"noise":       {push.Options{Noise: 200}, values, all},
		"batches":     {push.Options{Noise: 50, BatchSize: 3}, values, all},
		"undelimited": {push.Options{Undelimited: true}, values, all},
		"labels":      {push.Options{TagsAsLabels: true, BatchSize: 1}, values, all},
		"gateway":     {push.Options{Type: push.Router, Port: 443}, push.Values{Outbound: values.Outbound}, map[string]float64{store.OutboundActiveRequests: 2}},
		"never used":  {push.Options{Noise: 20}, push.Values{}, map[string]float64{}},
		"idle again":  {push.Options{}, push.Values{Inbound: push.Requests{Begun: 1, Ended: 1}}, map[string]float64{store.InboundActiveRequests: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := store.Pod{Namespace: "shop", Name: strings.ReplaceAll(name, " ", "-")}
			c.o.Target, c.o.Pod, c.o.Namespace = r.addr, pod.Name, pod.Namespace
			c.o.Every, c.o.First, c.o.Read = time.Hour, time.Millisecond, func() push.Values { return c.v }
			before := time.Now().Truncate(time.Millisecond)
			pushing(t, c.o)
			require.Eventually(t, func() bool { return r.sample(pod) != nil }, patience, time.Millisecond)
			got := r.sample(pod)
			require.Equal(t, c.want, got.Values)
			require.WithinRange(t, got.At, before, time.Now())
		})
	}
}

// TestMeanOfAPushedInterval: 15 s of requests in a first interval of 5 s.
func TestMeanOfAPushedInterval(t *testing.T) {
	r := receive(t, Options{Mean: true}, Transport{})
	pushing(t, push.Options{Target: r.addr, Pod: web.Name, Namespace: web.Namespace, Every: time.Hour, First: time.Millisecond,
		Read: func() push.Values {
			return push.Values{Inbound: push.Requests{Begun: 30, Ended: 30, Time: 15 * time.Second}}
		}})
	r.has(web, store.InboundMeanRequests, 3)
}

// TestStreamWithoutName ends after its first message.
func TestStreamWithoutName(t *testing.T) {
	r := receive(t, Options{}, Transport{})
	for _, m := range []*metrics.StreamMetricsMessage{message(gauge(inbound, 1, 1000)), {Identifier: &metrics.StreamMetricsMessage_Identifier{}}, named(t, store.Pod{Namespace: "a", Name: "B"})} {
		stream := client(t, r.addr)
		require.NoError(t, stream.Send(m))
		require.Equal(t, codes.InvalidArgument, ends(stream))
	}
	require.Equal(t, 3.0, testutil.ToFloat64(r.counts.rejected.WithLabelValues(nameless)))
	require.Empty(t, r.Streams())
}

// TestIdentifierCountsInTheFirstMessageOnly: a later one cannot make a stream
// another pod's.
func TestIdentifierCountsInTheFirstMessageOnly(t *testing.T) {
	r := receive(t, Options{}, Transport{})
	stream := client(t, r.addr)
	require.NoError(t, stream.Send(named(t, web, gauge(inbound, 1, 1000))))
	other := store.Pod{Namespace: "shop", Name: "other"}
	require.NoError(t, stream.Send(named(t, other, gauge(inbound, 2, 2000))))
	r.has(web, store.InboundActiveRequests, 2)
	require.Nil(t, r.sample(other))
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { return nil }
func (raw) Name() string                       { return "proto" }

var _ encoding.Codec = raw{}

// TestGarbageOnTheWire ends the stream, and what it said before stays.
func TestGarbageOnTheWire(t *testing.T) {
	r := receive(t, Options{}, Transport{})
	for _, junk := range [][]byte{{0xff}, []byte(strings.Repeat("garbage", 1000)), {0x12, 0xff, 0xff, 0xff, 0xff, 0x7f}} {
		stream := client(t, r.addr, grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
		require.NoError(t, stream.SendMsg(&junk))
		require.Equal(t, codes.Internal, ends(stream))
	}
	r.counted(r.counts.rejected.WithLabelValues(garbage), 3)
	require.Empty(t, r.Streams())
}

// TestLargeMessages is envoy issue 37777: all metrics of a proxy in one message
// may be more than 4 MiB, gRPC's default. What is beyond reason is refused.
func TestLargeMessages(t *testing.T) {
	r := receive(t, Options{}, Transport{})
	big := func(mib int) *metrics.StreamMetricsMessage {
		m := named(t, web, gauge(inbound, 3, 1000))
		name := "cluster." + strings.Repeat("x", 1000)
		for range mib * 1100 {
			m.EnvoyMetrics = append(m.EnvoyMetrics, gauge(name, 1, 1000))
		}
		return m
	}
	stream := client(t, r.addr)
	require.NoError(t, stream.Send(big(5)))
	r.has(web, store.InboundActiveRequests, 3)
	stream = client(t, r.addr)
	_ = stream.Send(big(33)) // may learn of the end already
	require.Equal(t, codes.ResourceExhausted, ends(stream))
	r.counted(r.counts.rejected.WithLabelValues(tooLarge), 1)
}

// TestLastFlushOfAStreamInOrder is put at once; the answer follows.
func TestLastFlushOfAStreamInOrder(t *testing.T) {
	r := receive(t, Options{Quiet: time.Hour}, Transport{})
	stream := client(t, r.addr)
	require.NoError(t, stream.Send(named(t, web, gauge(inbound, 3, 1000))))
	_, err := stream.CloseAndRecv()
	require.NoError(t, err)
	require.Equal(t, 3.0, r.sample(web).Values[store.InboundActiveRequests])
	require.Empty(t, r.Streams())
}

// TestYoungerStreamOfAPodWins, while the old one is still open.
func TestYoungerStreamOfAPodWins(t *testing.T) {
	r := receive(t, Options{}, Transport{})
	old, young := client(t, r.addr), client(t, r.addr)
	require.NoError(t, old.Send(named(t, web, gauge(inbound, 1, 1000))))
	r.has(web, store.InboundActiveRequests, 1)
	require.NoError(t, young.Send(named(t, web, gauge(inbound, 2, 500))))
	r.has(web, store.InboundActiveRequests, 2)
	require.NoError(t, old.Send(message(gauge(inbound, 9, 9000))))
	require.NoError(t, old.CloseSend()) // the flush is put at the latest now
	require.Equal(t, codes.OK, ends(old))
	require.Equal(t, 2.0, r.sample(web).Values[store.InboundActiveRequests])
	require.Equal(t, 1.0, testutil.ToFloat64(r.counts.duplicates))
	require.NoError(t, young.Send(message(gauge(inbound, 3, 400))))
	r.has(web, store.InboundActiveRequests, 3)
}

func TestStreamsAreLimited(t *testing.T) {
	r := receive(t, Options{MaxStreams: 1}, Transport{})
	stream := client(t, r.addr)
	require.NoError(t, stream.Send(named(t, web, gauge(inbound, 1, 1000))))
	r.has(web, store.InboundActiveRequests, 1)
	require.Equal(t, codes.ResourceExhausted, ends(client(t, r.addr)))
	require.Equal(t, 1.0, testutil.ToFloat64(r.counts.rejected.WithLabelValues(tooMany)))
	_, err := stream.CloseAndRecv()
	require.NoError(t, err)
	again := client(t, r.addr)
	require.NoError(t, again.Send(named(t, web, gauge(inbound, 4, 1000))))
	r.has(web, store.InboundActiveRequests, 4)
}

// TestOldConnectionsEnd: the proxy comes back with the next flush, names itself
// again, and goes on with a higher epoch. Otherwise replicas that are added
// would get no streams.
func TestOldConnectionsEnd(t *testing.T) {
	r := receive(t, Options{}, Transport{MaxAge: 300 * time.Millisecond})
	var flushes atomic.Int64
	pushing(t, push.Options{Target: r.addr, Pod: web.Name, Namespace: web.Namespace, Every: 20 * time.Millisecond, Read: func() push.Values {
		return push.Values{Inbound: push.Requests{Active: flushes.Add(1), Begun: 1}}
	}})
	require.Eventually(t, func() bool { s := r.sample(web); return s != nil && s.Epoch >= 3 }, patience, time.Millisecond)
	require.Zero(t, testutil.ToFloat64(r.counts.duplicates))
	require.Zero(t, testutil.ToFloat64(r.counts.rejected.WithLabelValues(nameless)))
}

// TestReceiverThatComesBack: soft state heals by one flush of each proxy.
func TestReceiverThatComesBack(t *testing.T) {
	r := receive(t, Options{}, Transport{})
	pushing(t, push.Options{Target: r.addr, Pod: web.Name, Namespace: web.Namespace, Every: 20 * time.Millisecond, Read: func() push.Values {
		return push.Values{Inbound: push.Requests{Active: 3, Begun: 3}}
	}})
	r.has(web, store.InboundActiveRequests, 3)
	r.grpc.Stop()
	l, err := net.Listen("tcp", r.addr)
	require.NoError(t, err)
	fresh, err := New(Options{Store: store.NewLocal(time.Minute)})
	require.NoError(t, err)
	second := &receiver{Server: fresh, t: t, store: fresh.opts.Store, grpc: grpc.NewServer(ServerOptions(Transport{})...)}
	fresh.Register(second.grpc)
	var serving sync.WaitGroup
	serving.Go(func() { _ = second.grpc.Serve(l) }) // ends by Stop
	defer serving.Wait()
	defer second.grpc.Stop()
	second.has(web, store.InboundActiveRequests, 3)
}

// TestWhatStreamsShow is envoy issue 7910: that a proxy does not push what it
// should must be seen from here.
func TestWhatStreamsShow(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := receive(t, Options{Metrics: registry, Log: slog.New(slog.DiscardHandler)}, Transport{})
	for name, family := range map[string]string{"busy": inbound, "blind": "server.live", "stats": "http.stats.downstream_rq_active"} {
		stream := client(t, r.addr)
		require.NoError(t, stream.Send(named(t, store.Pod{Namespace: "shop", Name: name}, gauge(family, 1, 1000))))
		for i := range int64(settled) {
			require.NoError(t, stream.Send(message(gauge(family, 1, 2000+i))))
		}
	}
	nan := client(t, r.addr)
	require.NoError(t, nan.Send(named(t, web, gauge(inbound, 1, 1000))))
	require.NoError(t, nan.Send(message(gauge(inbound, math.NaN(), 2000))))
	want := map[string]float64{"streams": 4, "streams_without_requests": 2, "streams_only_own_listeners": 1, "streams_bad": 1}
	require.Eventually(t, func() bool {
		for name, n := range want {
			if scrape(t, registry, "activescale_sink_"+name) != n {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond)
	require.Equal(t, 14.0, scrape(t, registry, "activescale_sink_flushes_total"))
	for _, st := range r.Streams() {
		require.NotZero(t, st.Epoch)
		require.NotEmpty(t, st.Peer)
		require.Equal(t, st.Pod.Name == "busy" || st.Pod == web, st.Requests, st.Pod)
		require.Equal(t, st.Pod.Name == "stats", st.OnlyOthers, st.Pod)
	}
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	_, err = New(Options{Store: r.store, Metrics: registry})
	require.Error(t, err, "registered twice")
}

// scrape is the value of a metric without labels.
func scrape(t testing.TB, g prometheus.Gatherer, name string) float64 {
	families, err := g.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
