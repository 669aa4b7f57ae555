package sink

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"heartbed/activescale/store"
)

// Why a stream, a message or a flush was rejected.
const (
	tooMany  = "too_many_streams"
	nameless = "no_pod"
	foreign  = "identity"
	tooLarge = "too_large"
	garbage  = "garbage"
	badValue = "bad_value" // the flush is not stored
)

// Why the value of a metric was ignored.
const (
	valueMissing   = "missing"
	valueNaN       = "nan"
	valueNegative  = "negative"
	valueInfinite  = "infinite"
	valueTooLarge  = "too_large"
	emptyHistogram = "empty_histogram"
)

// counts are the receiver's own metrics.
type counts struct {
	messages, flushes, late, incomplete, duplicates, storeErrors prometheus.Counter
	rejected, ignored                                            *prometheus.CounterVec
	gap, visible                                                 prometheus.Histogram
}

func newCounts() *counts {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "activescale_sink_" + name + "_total", Help: help})
	}
	vector := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "activescale_sink_" + name + "_total", Help: help}, []string{"reason"})
	}
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "activescale_sink_" + name + "_seconds", Help: help, Buckets: buckets})
	}
	c := &counts{
		messages:    counter("messages", "Messages received from proxies."),
		flushes:     counter("flushes", "Flushes received, each of one or more messages."),
		late:        counter("late_messages", "Messages of a flush that was taken for complete and stored without them, and then stored again."),
		incomplete:  counter("incomplete_flushes", "Flushes dropped because the stream broke before they were known to be complete."),
		duplicates:  counter("duplicate_streams", "Streams opened for a pod that had an open one."),
		storeErrors: counter("store_errors", "Samples and numbers of streams that the store refused."),
		rejected:    vector("rejected", "Streams, messages and flushes rejected."),
		ignored:     vector("ignored_values", "Values of metrics that cannot be."),
		gap:         histogram("flush_gap", "Time between the beginnings of two flushes of a stream.", 0.1, 0.5, 0.9, 1.1, 2, 4.5, 5.5, 10, 15, 20, 60),
		visible:     histogram("visible", "Time from the last message of a flush until the store had the sample.", 0.005, 0.01, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1, 0.25, 1),
	}
	for _, reason := range []string{tooMany, nameless, foreign, tooLarge, garbage, badValue} {
		c.rejected.WithLabelValues(reason) // zero is seen, too
	}
	return c
}

// collectors are all metrics, with those that are looked up when scraped.
func (s *Server) collectors() []prometheus.Collector {
	gauge := func(name, help string, of func(Stream) bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "activescale_sink_" + name, Help: help}, func() float64 {
			n := 0
			for _, st := range s.Streams() {
				if of(st) {
					n++
				}
			}
			return float64(n)
		})
	}
	c := s.counts
	return []prometheus.Collector{
		c.messages, c.flushes, c.late, c.incomplete, c.duplicates, c.storeErrors, c.rejected, c.ignored, c.gap, c.visible,
		gauge("streams", "Open streams of pods.", func(Stream) bool { return true }),
		gauge("streams_without_requests", "Open streams that never had a gauge of requests: idle pods, or proxies whose proxyStatsMatcher leaves it out.",
			func(st Stream) bool { return st.Flushes >= settled && !st.Requests }),
		gauge("streams_only_own_listeners", "Open streams with gauges of requests to the proxy's own listeners only, such as http.stats.",
			func(st Stream) bool { return st.OnlyOthers }),
		gauge("streams_bad", "Open streams whose last flush was not stored, for a value that cannot be.", func(st Stream) bool { return st.Bad }),
	}
}

// settled is the number of flushes after which a stream without requests is
// worth a question.
const settled = 3

// seldom lets something happen once in a while.
type seldom struct{ next atomic.Int64 }

// logEvery is how often a store that fails is logged.
const logEvery = 10 * time.Second

func (s *seldom) now() bool {
	now, next := time.Now().UnixNano(), s.next.Load()
	return now >= next && s.next.CompareAndSwap(next, now+int64(logEvery))
}

// storeFailed counts an error of the store. Streams go on: what is stored is
// replaced by the next flush anyway.
func (s *Server) storeFailed(what string, pod store.Pod, err error) {
	s.counts.storeErrors.Inc()
	if s.storing.now() {
		s.opts.Log.Error("the store fails", "to", what, "pod", pod, "error", err)
	}
}

// Stream is an open stream, as a doctor wants to see it.
type Stream struct {
	Pod   store.Pod
	Node  string // the proxy's id, as it gave it
	Peer  string // its address
	Epoch uint64 // 0 = the store has not numbered it yet
	Since time.Time
	// Flushes so far, and when the last began.
	Flushes uint64
	Last    time.Time
	// Requests says that a gauge of requests was among the metrics. Without, the
	// pod has never had a request, or its proxy does not send the gauge.
	Requests bool
	// OnlyOthers says that only gauges of the proxy's own listeners were, which
	// hints at the latter (envoy issue 28488).
	OnlyOthers bool
	// Bad says that the last flush was not stored, for a value that cannot be.
	Bad bool
}

// Streams are the open ones, in no order. It waits for no stream.
func (s *Server) Streams() []Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Stream, 0, len(s.streams))
	for st := range s.streams {
		f := &st.facts
		all = append(all, Stream{
			Pod: st.pod, Node: st.node, Peer: st.peer, Epoch: f.epoch.Load(), Since: st.since, Flushes: f.flushes.Load(),
			Last: time.Unix(0, f.last.Load()), Requests: f.requests.Load(), OnlyOthers: f.onlyOthers.Load(), Bad: f.bad.Load(),
		})
	}
	return all
}
