package sink

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"heartbed/activescale/store"
)

var web = store.Pod{Namespace: "shop", Name: "web-0"}

const (
	inbound     = "http.inbound_0.0.0.0_8080;.downstream_rq_active"
	outbound    = "http.outbound_0.0.0.0_80;.downstream_rq_active"
	connections = "listener.0.0.0.0_8080.downstream_cx_active"
	captured    = "listener.0.0.0.0_15006.downstream_cx_active"
	took        = "http.inbound_0.0.0.0_8080;.downstream_rq_time"
)

// gauge is a family as Envoy sends it.
func gauge(name string, v float64, millis int64) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &v}, TimestampMs: &millis}}}
}

// histogram is one of durations in ms.
func histogram(name string, count uint64, sum float64, millis int64) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: dto.MetricType_HISTOGRAM.Enum(), Metric: []*dto.Metric{{
		Histogram: &dto.Histogram{SampleCount: &count, SampleSum: &sum}, TimestampMs: &millis,
	}}}
}

// summary is the same statistic as a summary, whose quantiles are NaN when
// empty.
func summary(name string, count uint64, sum float64, millis int64) *dto.MetricFamily {
	return &dto.MetricFamily{Name: &name, Type: dto.MetricType_SUMMARY.Enum(), Metric: []*dto.Metric{{
		Summary:     &dto.Summary{SampleCount: &count, SampleSum: &sum, Quantile: []*dto.Quantile{{Quantile: proto.Float64(0.5), Value: proto.Float64(math.NaN())}}},
		TimestampMs: &millis,
	}}}
}

func message(families ...*dto.MetricFamily) *metrics.StreamMetricsMessage {
	return &metrics.StreamMetricsMessage{EnvoyMetrics: families}
}

// recorder keeps what is put, in a store that may fail or be slow.
type recorder struct {
	store.Store
	mu              sync.Mutex
	put             []store.Sample
	openErr, putErr error
	slow            time.Duration
}

func (r *recorder) Open(ctx context.Context) (uint64, error) {
	if r.openErr != nil {
		return 0, r.openErr
	}
	return r.Store.Open(ctx)
}

func (r *recorder) Put(ctx context.Context, pod store.Pod, s store.Sample) error {
	select {
	case <-time.After(r.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	r.put = append(r.put, s)
	r.mu.Unlock()
	if r.putErr != nil {
		return r.putErr
	}
	return r.Store.Put(ctx, pod, s)
}

// bubble is a stream without a connection, in a bubble of time.
type bubble struct {
	*stream
	t     *testing.T
	store *recorder
	log   *bytes.Buffer
}

// inBubble runs f with a stream of web whose time is virtual.
func inBubble(t *testing.T, o Options, metadata map[string]any, f func(b bubble)) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{Store: store.NewLocal(20 * time.Second)}
		log := &bytes.Buffer{}
		o.Store, o.Log, o.Metrics = r, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewPedanticRegistry()
		s, err := New(o)
		require.NoError(t, err)
		st := newStream(t.Context(), s, web, node(t, "x", metadata))
		defer st.end()
		f(bubble{st, t, r, log})
	})
}

// send takes a message; wait lets the flush become complete.
func (b bubble) send(families ...*dto.MetricFamily) { b.take(b.t.Context(), message(families...)) }

func (b bubble) wait(d time.Duration) { time.Sleep(d); synctest.Wait() }

// kept is what the store has of the pod.
func (b bubble) kept() map[string]float64 {
	got, err := b.store.Get(b.t.Context(), []store.Pod{web})
	require.NoError(b.t, err)
	if s, ok := got[web]; ok {
		return s.Values
	}
	return nil
}

func (b bubble) ignored(reason string) float64 {
	return testutil.ToFloat64(b.server.counts.ignored.WithLabelValues(reason))
}

// TestBatchesAreOneFlush is envoy issue 37777 (pull 41831): a flush may come
// in several messages, and a partial sum must never be seen.
func TestBatchesAreOneFlush(t *testing.T) {
	inBubble(t, Options{}, nil, func(b bubble) {
		b.send(gauge(inbound, 3, 1000), gauge(connections, 7, 1000))
		b.wait(15 * time.Millisecond)
		b.send(gauge("http.inbound_0.0.0.0_9090;.downstream_rq_active", 4, 1000))
		b.wait(15 * time.Millisecond)
		b.send(gauge(outbound, 2, 1000))
		require.Nil(t, b.kept(), "the flush may go on")
		b.wait(20 * time.Millisecond)
		require.Equal(t, map[string]float64{store.InboundActiveRequests: 7, store.OutboundActiveRequests: 2, store.ActiveConnections: 7}, b.kept())
		require.Len(t, b.store.put, 1)
		require.Equal(t, time.UnixMilli(1000), b.store.put[0].At)
		b.wait(time.Hour)
		require.Len(t, b.store.put, 1)
	})
}

func TestNextFlushCompletesTheLast(t *testing.T) {
	inBubble(t, Options{}, nil, func(b bubble) {
		b.send(gauge(inbound, 3, 1000))
		b.send(gauge(inbound, 5, 2000))
		require.Equal(t, 3.0, b.kept()[store.InboundActiveRequests])
		b.wait(20 * time.Millisecond)
		require.Equal(t, 5.0, b.kept()[store.InboundActiveRequests])
		require.Equal(t, 2.0, testutil.ToFloat64(b.server.counts.flushes))
	})
}

// TestLateMessageMakesTheFlushWhole delays a message beyond the quiet time.
func TestLateMessageMakesTheFlushWhole(t *testing.T) {
	inBubble(t, Options{}, nil, func(b bubble) {
		b.send(gauge(inbound, 3, 1000))
		b.wait(time.Second)
		b.send(gauge("http.inbound_0.0.0.0_9090;.downstream_rq_active", 4, 1000))
		b.wait(20 * time.Millisecond)
		require.Equal(t, 7.0, b.kept()[store.InboundActiveRequests])
		require.Equal(t, 1.0, testutil.ToFloat64(b.server.counts.late))
		require.Equal(t, 1.0, testutil.ToFloat64(b.server.counts.flushes))
		require.True(t, b.store.put[0].Before(b.store.put[1]))
	})
}

// TestClocksOfSenders: a clock that goes back, stands still or does not exist
// changes what is reported as time, and nothing else.
func TestClocksOfSenders(t *testing.T) {
	for name, millis := range map[string][3]int64{"back": {9000, 4000, 4500}, "still": {1000, 1000, 1000}, "none": {0, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, nil, func(b bubble) {
				for i, ms := range millis {
					b.send(gauge(connections, 1, ms), gauge(inbound, float64(10+i), ms))
					b.wait(5 * time.Second)
					require.Equal(t, map[string]float64{store.InboundActiveRequests: float64(10 + i), store.ActiveConnections: 1}, b.kept())
				}
				require.Len(t, b.store.put, 3)
				if name == "none" {
					require.WithinDuration(t, time.Now().Add(-5*time.Second), b.store.put[2].At, 0)
				}
			})
		})
	}
}

// TestHeartbeat: a proxy that was never used sends other gauges only, or none
// at all, and is alive.
func TestHeartbeat(t *testing.T) {
	for _, m := range []*metrics.StreamMetricsMessage{message(), message(gauge("server.live", 1, 1000))} {
		inBubble(t, Options{Mean: true}, nil, func(b bubble) {
			b.take(b.t.Context(), m)
			b.wait(20 * time.Millisecond)
			require.Equal(t, map[string]float64{}, b.kept())
			require.Len(t, b.store.put, 1)
		})
	}
}

// TestValuesThatCannotBe: a flush with one is not stored, because a metric
// that is absent from a sample reads as never used, which is zero. What was
// stored before stays until it expires.
func TestValuesThatCannotBe(t *testing.T) {
	name := inbound
	empty := func(m ...*dto.Metric) *dto.MetricFamily {
		return &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: m}
	}
	for reason, bad := range map[string]*dto.MetricFamily{
		valueNaN: gauge(inbound, math.NaN(), 2000), valueNegative: gauge(inbound, -1, 2000), valueInfinite: gauge(inbound, math.Inf(1), 2000),
		valueTooLarge: gauge(inbound, math.MaxUint64, 2000), // an Envoy gauge that fell below zero
		valueMissing:  empty(&dto.Metric{TimestampMs: proto.Int64(2000)}),
	} {
		t.Run(reason, func(t *testing.T) {
			inBubble(t, Options{}, nil, func(b bubble) {
				b.send(gauge(inbound, 3, 1000), gauge(connections, 2, 1000))
				b.wait(5 * time.Second)
				b.send(bad, gauge(connections, 8, 2000))
				b.wait(time.Second)
				require.Equal(t, map[string]float64{store.InboundActiveRequests: 3, store.ActiveConnections: 2}, b.kept())
				require.Equal(t, 1.0, b.ignored(reason))
				require.Equal(t, 1.0, testutil.ToFloat64(b.server.counts.rejected.WithLabelValues(badValue)))
				require.True(t, b.facts.bad.Load())
				b.send(gauge(inbound, 4, 3000))
				b.wait(time.Second)
				require.Equal(t, map[string]float64{store.InboundActiveRequests: 4}, b.kept())
				require.False(t, b.facts.bad.Load())
			})
		})
	}
}

// TestWhatSaysNothing: families without metrics, other types under a name that
// counts, and metrics that do not count whatever their value.
func TestWhatSaysNothing(t *testing.T) {
	counter := func(name string, v float64) *dto.MetricFamily {
		return &dto.MetricFamily{Name: &name, Type: dto.MetricType_COUNTER.Enum(), Metric: []*dto.Metric{{Counter: &dto.Counter{Value: &v}}}}
	}
	inBubble(t, Options{Mean: true}, nil, func(b bubble) {
		b.send(nil, &dto.MetricFamily{}, &dto.MetricFamily{Name: proto.String(inbound)}, &dto.MetricFamily{Name: proto.String(inbound), Metric: []*dto.Metric{nil, {}}},
			counter(inbound, -5), counter(took, math.NaN()), gauge("server.x", math.NaN(), 1000), gauge("http.stats.downstream_rq_active", math.Inf(-1), 1000))
		b.wait(time.Second)
		require.Equal(t, map[string]float64{}, b.kept())
	})
}

func TestConnections(t *testing.T) {
	perPort, outside := gauge(connections, 5, 0), gauge("listener.10.96.0.1_443.downstream_cx_active", 2, 0)
	intercepted := gauge(captured, 3, 0)
	redirect := map[string]any{"INTERCEPTION_MODE": "REDIRECT"}
	for name, c := range map[string]struct {
		metadata map[string]any
		flushes  [][]*dto.MetricFamily
		want     any // of the last flush; nil = none
	}{
		"a gateway's ports add up":               {nil, [][]*dto.MetricFamily{{perPort, outside}}, 7.0},
		"what is intercepted counts alone":       {nil, [][]*dto.MetricFamily{{perPort, intercepted, outside}}, 3.0},
		"once intercepted, always":               {nil, [][]*dto.MetricFamily{{intercepted}, {perPort}}, nil},
		"a sidecar's ports are not its clients'": {redirect, [][]*dto.MetricFamily{{perPort, outside}}, nil},
		"a sidecar":                              {redirect, [][]*dto.MetricFamily{{perPort, intercepted}}, 3.0},
		"a sidecar without interception":         {map[string]any{"INTERCEPTION_MODE": "NONE"}, [][]*dto.MetricFamily{{perPort}}, 5.0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, c.metadata, func(b bubble) {
				for _, families := range c.flushes {
					b.send(families...)
					b.wait(time.Second)
				}
				got, ok := b.kept()[store.ActiveConnections]
				if c.want == nil {
					require.False(t, ok, "found %v", got)
					return
				}
				require.Equal(t, c.want, got)
			})
		})
	}
}

// TestBrokenStreamLeavesNoPart: what was not known to be complete is dropped.
func TestBrokenStreamLeavesNoPart(t *testing.T) {
	inBubble(t, Options{}, nil, func(b bubble) {
		b.send(gauge(inbound, 3, 1000))
		b.end()
		b.wait(time.Second)
		require.Nil(t, b.kept())
		require.Equal(t, 1.0, testutil.ToFloat64(b.server.counts.incomplete))
	})
}

// TestStoreThatFails: the stream goes on, errors are counted and seldom
// logged, and a stream without a number asks for it again.
func TestStoreThatFails(t *testing.T) {
	inBubble(t, Options{}, nil, func(b bubble) {
		b.epoch, b.store.openErr = 0, errors.New("no route to it")
		for i := range int64(10) {
			b.send(gauge(inbound, 3, 1000*i))
			b.wait(time.Second)
		}
		require.Equal(t, 10.0, testutil.ToFloat64(b.server.counts.storeErrors))
		require.Equal(t, 1, strings.Count(b.log.String(), "no route to it"), b.log)
		b.store.openErr, b.store.putErr = nil, errors.New("it is full")
		b.wait(time.Second)
		b.send(gauge(inbound, 3, 20_000))
		b.wait(time.Second)
		require.Equal(t, 1, strings.Count(b.log.String(), "it is full"), b.log)
		b.store.putErr = nil
		b.send(gauge(inbound, 4, 21_000))
		b.wait(time.Second)
		require.Equal(t, 4.0, b.kept()[store.InboundActiveRequests])
	})
}

// TestSlowStoreHoldsTheStream: nothing piles up, and no call lasts longer than
// its bound.
func TestSlowStoreHoldsTheStream(t *testing.T) {
	inBubble(t, Options{PutTimeout: time.Second}, nil, func(b bubble) {
		b.store.slow = time.Hour
		b.send(gauge(inbound, 3, 1000))
		start := time.Now()
		for i := range int64(4) { // each ends the one before
			b.send(gauge(inbound, 3, 2000+i))
		}
		require.Equal(t, 4*time.Second, time.Since(start))
		require.Equal(t, 4.0, testutil.ToFloat64(b.server.counts.storeErrors))
		require.Len(t, b.server.Streams(), 0, "only enlisted streams are shown, without waiting")
	})
}

// TestOnlyOwnListeners is envoy issue 28488: http.stats, which counts the very
// request that reads it, is not the pod's traffic.
func TestOnlyOwnListeners(t *testing.T) {
	inBubble(t, Options{}, nil, func(b bubble) {
		for i := range int64(5) {
			b.send(gauge("http.stats.downstream_rq_active", 1, 1000*i))
			b.wait(time.Second)
		}
		require.Equal(t, map[string]float64{}, b.kept())
		require.True(t, b.facts.onlyOthers.Load())
		require.Equal(t, 1, strings.Count(b.log.String(), "proxyStatsMatcher"), b.log)
		b.send(gauge(inbound, 0, 9000))
		b.wait(time.Second)
		require.False(t, b.facts.onlyOthers.Load())
		require.Equal(t, map[string]float64{store.InboundActiveRequests: 0}, b.kept())
	})
}

// FuzzTake: whatever bytes come as a message, what is stored is a count.
func FuzzTake(f *testing.F) {
	for _, m := range []*metrics.StreamMetricsMessage{
		message(), message(gauge(inbound, 3, 1000), gauge(connections, 4, 1000), histogram(took, 3, 17, 1000), summary(took, 3, 17, 1000)),
		message(gauge(captured, math.Inf(1), -1), gauge(outbound, math.NaN(), 0)),
	} {
		raw, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(raw, raw)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r := &recorder{Store: store.NewLocal(time.Minute)}
		s, err := New(Options{Store: r, Mean: true, Quiet: time.Hour})
		require.NoError(t, err)
		st := newStream(t.Context(), s, web, nil)
		defer st.end()
		for _, raw := range [][]byte{first, second} {
			var m metrics.StreamMetricsMessage
			if proto.Unmarshal(raw, &m) == nil {
				st.take(t.Context(), &m)
			}
		}
		st.finish(t.Context())
		for _, sample := range r.put {
			for name, v := range sample.Values {
				require.Contains(t, store.Metrics(), name)
				require.True(t, v >= 0 && !math.IsInf(v, 0), "%s is %v", name, v)
			}
		}
	})
}
