package sink

import (
	"math"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	dto "github.com/prometheus/client_model/go"

	"heartbed/activescale/store"
)

// tally is what the metrics of a message, or of a flush, come to.
type tally struct {
	inbound, outbound  sum    // requests in flight
	ports, intercepted sum    // connections: of listeners by their port, of the one that gets what is intercepted
	histogram, summary sum    // time of the inbound requests that ended in the interval, ms
	others             bool   // a gauge of the requests to the proxy's own listeners is there
	bad                bool   // a gauge had a value that cannot be
	badTime, empty     bool   // one of the times had, was of no request
	first              uint64 // hash of the name of the first gauge that counts; 0 = none
}

// sum of values; without any it is not zero but nothing.
type sum struct {
	total float64
	seen  bool
}

func (s *sum) add(v float64) { s.total, s.seen = s.total+v, true }

func (s *sum) join(o sum) { s.total, s.seen = s.total+o.total, s.seen || o.seen }

// join adds a later message of the flush.
func (t *tally) join(o tally) {
	t.inbound.join(o.inbound)
	t.outbound.join(o.outbound)
	t.ports.join(o.ports)
	t.intercepted.join(o.intercepted)
	t.histogram.join(o.histogram)
	t.summary.join(o.summary)
	t.others, t.bad = t.others || o.others, t.bad || o.bad
	t.badTime, t.empty = t.badTime || o.badTime, t.empty || o.empty
	if t.first == 0 {
		t.first = o.first
	}
}

// read adds up a message. It repeats if the gauge is in it that a flush began
// with: Envoy sends a name once in a flush, so that a message which repeats one
// is of another, even if the sender's clock stands still.
func read(m *metrics.StreamMetricsMessage, first uint64, c *counts) (t tally, repeats bool) {
	for _, family := range m.GetEnvoyMetrics() {
		for _, metric := range family.GetMetric() {
			k := kindOf(family.GetName(), metric.GetLabel())
			if k == nothing || !t.count(k, family, metric, c) {
				continue
			}
			name := hash(family.GetName(), metric.GetLabel())
			repeats = repeats || name == first
			if t.first == 0 {
				t.first = name
			}
		}
	}
	return t, repeats
}

// count adds a metric to its sum and says whether it is a gauge that counts.
func (t *tally) count(k kind, family *dto.MetricFamily, m *dto.Metric, c *counts) bool {
	if k == inboundTime {
		t.time(family.GetType(), m, c)
		return false
	}
	if family.GetType() != dto.MetricType_GAUGE {
		return false
	}
	if k == otherActive {
		t.others = true
		return false
	}
	if m.GetGauge() == nil || m.Gauge.Value == nil {
		t.reject(c, valueMissing)
		return true
	}
	v := m.Gauge.GetValue()
	if why := fault(v); why != "" {
		t.reject(c, why)
		return true
	}
	switch k {
	case inboundActive:
		t.inbound.add(v)
	case outboundActive:
		t.outbound.add(v)
	case portConnections:
		t.ports.add(v)
	case interceptedConnections:
		t.intercepted.add(v)
	}
	return true
}

// time adds the sum of an interval, of which Envoy sends a summary, a
// histogram or both. Empty ones are usual (envoy issue 21812), and whatever
// their sum says is nothing.
func (t *tally) time(kind dto.MetricType, m *dto.Metric, c *counts) {
	switch {
	case kind == dto.MetricType_HISTOGRAM && m.GetHistogram() != nil:
		t.addTime(&t.histogram, m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum(), c)
	case kind == dto.MetricType_SUMMARY && m.GetSummary() != nil:
		t.addTime(&t.summary, m.Summary.GetSampleCount(), m.Summary.GetSampleSum(), c)
	case kind == dto.MetricType_HISTOGRAM || kind == dto.MetricType_SUMMARY:
		c.ignored.WithLabelValues(valueMissing).Inc()
		t.badTime = true
	}
}

func (t *tally) addTime(into *sum, count uint64, v float64, c *counts) {
	if count == 0 {
		c.ignored.WithLabelValues(emptyHistogram).Inc()
		t.empty = true
		return
	}
	if why := fault(v); why != "" {
		c.ignored.WithLabelValues(why).Inc()
		t.badTime = true
		return
	}
	into.add(v)
}

func (t *tally) reject(c *counts, why string) {
	c.ignored.WithLabelValues(why).Inc()
	t.bad = true
}

// beyond is more than anything that a proxy counts: Envoy's gauges are
// integers of 64 bits, and one that fell below zero reads as nearly 2^64.
const beyond = 1 << 53

// fault says why a value cannot be, "" if it can.
func fault(v float64) string {
	switch {
	case math.IsNaN(v):
		return valueNaN
	case v < 0:
		return valueNegative
	case math.IsInf(v, 1):
		return valueInfinite
	case v > beyond:
		return valueTooLarge
	}
	return ""
}

// values are the sample's. A metric that the proxy has not used is absent.
func (t *tally) values(captured, mean bool, interval time.Duration) map[string]float64 {
	values := make(map[string]float64, 4)
	set := func(name string, s sum) {
		if s.seen {
			values[name] = s.total
		}
	}
	set(store.InboundActiveRequests, t.inbound)
	set(store.OutboundActiveRequests, t.outbound)
	set(store.ActiveConnections, t.connections(captured))
	if mean {
		set(store.InboundMeanRequests, t.mean(interval))
	}
	return values
}

// mean is the number of requests in flight in the mean of the interval, by
// Little's law from how long those took together that ended in it: in the
// histograms, which Envoy sends besides the summaries or instead. Where none
// ended, what is in flight now is all that is known. Unlike of a gauge there is
// none rather than zero if the proxy does not send the times, or one that
// cannot be.
func (t *tally) mean(interval time.Duration) sum {
	took := t.summary
	if t.histogram.seen {
		took = t.histogram
	}
	switch {
	case t.badTime:
		return sum{}
	case took.seen:
		return sum{took.total / float64(interval.Milliseconds()), true}
	case t.empty:
		return t.inbound
	}
	return sum{}
}

// connections are those that came to the pod. Where connections are
// intercepted all of them come to one listener, on port 15006, and the
// listeners with a port of their own are those of the services that the pod
// itself calls: only the first counts, even before it was used. Elsewhere, at a
// gateway or a sidecar that binds to the ports of its services, there is no
// such listener and all others count.
func (t *tally) connections(captured bool) sum {
	if captured {
		return t.intercepted
	}
	return t.ports
}

// timestamp is when the sender took the metrics, milliseconds since 1970; 0 if
// it does not say.
func timestamp(m *metrics.StreamMetricsMessage) int64 {
	for _, family := range m.GetEnvoyMetrics() {
		for _, metric := range family.GetMetric() {
			if ms := metric.GetTimestampMs(); ms != 0 {
				return ms
			}
		}
	}
	return 0
}
