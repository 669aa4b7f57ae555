package scaler

import (
	"cmp"
	"time"
)

// DefaultSync and DefaultTolerance are those of kube-controller-manager.
const (
	DefaultSync      = 15 * time.Second
	DefaultTolerance = 0.1
)

// feed is a metric on its way to the HPA: collected in its own rhythm, read
// when the HPA decides.
type feed interface {
	next() time.Duration
	collect(v View)
	// propose gives the replicas the metric asks for, before limits; false =
	// an error, which keeps the replicas.
	propose(v View) (int, bool)
}

// hpa is the horizontal pod autoscaler over one metric.
type hpa struct {
	feed   feed
	limits limits
	sync   time.Duration
	next   time.Duration
}

func newHPA(c Config) *hpa {
	h := &hpa{limits: limits{min: c.Min, max: c.Max, behavior: c.Behavior}, sync: cmp.Or(c.Sync, DefaultSync)}
	h.next = phase(c.Seed, syncStream, h.sync)
	rule := ratio{tolerance: cmp.Or(c.Tolerance, DefaultTolerance)}
	switch c.Kind {
	case KindCPU:
		h.feed = newMetricsServer(c, rule)
	case KindKEDA:
		h.feed = newPrometheus(c, rule)
	default:
		h.feed = newPush(c, rule)
	}
	return h
}

// Next implements Scaler.
func (h *hpa) Next() time.Duration { return min(h.next, h.feed.next()) }

// Act implements Scaler. What is collected at the moment of a decision comes
// first.
func (h *hpa) Act(v View) (int, bool) {
	if h.feed.next() <= v.Now {
		h.feed.collect(v)
	}
	if h.next > v.Now {
		return 0, false
	}
	h.next += h.sync
	proposed, ok := h.feed.propose(v)
	if !ok {
		return 0, false
	}
	replicas := h.limits.apply(v.Now, v.Replicas, proposed)
	return replicas, true
}
