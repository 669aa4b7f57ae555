package sink

import (
	"math"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"heartbed/activescale/store"
)

// TestMean is envoy issue 34262: a gauge is the value at the flush, and says
// nothing of the time before. 10 s of work in 5 s are 2 requests at a time.
func TestMean(t *testing.T) {
	const ms = 5000
	type step struct {
		after    time.Duration // the arrival of the flush after the last
		millis   int64
		families func(millis int64) []*dto.MetricFamily
		want     float64 // -1 = absent
	}
	worked := func(sum float64) func(int64) []*dto.MetricFamily {
		return func(millis int64) []*dto.MetricFamily {
			return []*dto.MetricFamily{histogram(took, 4, sum, millis), summary(took, 4, sum, millis)}
		}
	}
	for name, steps := range map[string][]step{
		"first of a stream":   {{0, ms, worked(10_000), 2}},
		"faster than thought": {{0, ms, worked(10_000), 2}, {time.Second, ms + 1000, worked(10_000), 10}},
		"stalled on the way":  {{0, ms, worked(10_000), 2}, {10 * time.Second, 2 * ms, worked(10_000), 2}, {50 * time.Millisecond, 3 * ms, worked(10_000), 2}},
		"clock set forward":   {{0, ms, worked(10_000), 2}, {5 * time.Second, 3600_000, worked(10_000), 2}, {5 * time.Second, 3605_000, worked(10_000), 2}},
		"clock set back":      {{0, 9 * ms, worked(10_000), 2}, {5 * time.Second, ms, worked(10_000), 2}},
		"only summaries":      {{0, ms, func(millis int64) []*dto.MetricFamily { return []*dto.MetricFamily{summary(took, 1, 5000, millis)} }, 1}},
		"two ports": {{0, ms, func(millis int64) []*dto.MetricFamily {
			return []*dto.MetricFamily{histogram(took, 1, 5000, millis), histogram("http.inbound_0.0.0.0_9090;.downstream_rq_time", 1, 2500, millis)}
		}, 1.5}},
		"empty (envoy issue 21812)": {{0, ms, func(millis int64) []*dto.MetricFamily {
			return []*dto.MetricFamily{histogram(took, 0, math.NaN(), millis), summary(took, 0, 0, millis)}
		}, -1}},
		"none ended, two are in flight": {{0, ms, func(millis int64) []*dto.MetricFamily {
			return []*dto.MetricFamily{gauge(inbound, 2, millis), histogram(took, 0, 0, millis)}
		}, 2}},
		"none is sent": {{0, ms, func(millis int64) []*dto.MetricFamily { return []*dto.MetricFamily{gauge(inbound, 2, millis)} }, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Mean: true}, nil, func(b bubble) {
				for i, s := range steps {
					b.wait(s.after)
					b.send(s.families(s.millis)...)
					b.finish(b.t.Context())
					got, ok := b.kept()[store.InboundMeanRequests]
					require.Equal(t, s.want >= 0, ok, "flush %d", i)
					if ok {
						require.InDelta(t, s.want, got, 1e-9, "flush %d", i)
					}
				}
			})
		})
	}
}

// TestMeanOfTimesThatCannotBe: there is none, and the gauges count.
func TestMeanOfTimesThatCannotBe(t *testing.T) {
	name := took
	for reason, bad := range map[string]*dto.MetricFamily{
		valueNegative: histogram(took, 5, -2, 1000), valueNaN: summary(took, 5, math.NaN(), 1000), valueTooLarge: histogram(took, 5, 1e300, 1000),
		valueMissing: {Name: &name, Type: dto.MetricType_HISTOGRAM.Enum(), Metric: []*dto.Metric{{}}},
	} {
		inBubble(t, Options{Mean: true}, nil, func(b bubble) {
			b.send(gauge(inbound, 3, 1000), histogram("http.inbound_0.0.0.0_9090;.downstream_rq_time", 5, 200, 1000), bad)
			b.finish(b.t.Context())
			require.Equal(t, 1.0, b.ignored(reason))
			require.Equal(t, map[string]float64{store.InboundActiveRequests: 3}, b.kept())
		})
	}
}
