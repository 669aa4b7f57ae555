package provider

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// measures are the provider's own metrics. What HPAs do not show, they do: a
// single missing pod damps scaling and the HPA's status goes on with old values
// (kubernetes issues 61007, 119788).
type measures struct {
	queries   *prometheus.CounterVec
	seconds   prometheus.Histogram
	ages      prometheus.Histogram
	missing   *prometheus.CounterVec
	badValues prometheus.Counter
	badCosts  prometheus.Counter
}

func newMeasures(r prometheus.Registerer) *measures {
	f := promauto.With(r)
	return &measures{
		queries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "activescale_queries_total",
			Help: "Queries by result: all (every running pod has a value), some, none (404), unknown (404: no such metric or resource), unavailable (503), error.",
		}, []string{"metric", "result"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "activescale_query_seconds",
			Help:    "How long a query took inside the provider.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2.5, 12), // 50 us to 1.2 s
		}),
		ages: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "activescale_query_sample_age_seconds",
			Help:    "How long ago the samples behind values were received, when they were answered, by the store's clock.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 120},
		}),
		missing: f.NewCounterVec(prometheus.CounterOpts{
			Name: "activescale_query_pods_missing_total",
			Help: "Running pods that a query selected and had no value for.",
		}, []string{"metric"}),
		badValues: f.NewCounter(prometheus.CounterOpts{
			Name: "activescale_query_bad_values_total",
			Help: "Values that were left out because they are negative or beyond all counting.",
		}),
		badCosts: f.NewCounter(prometheus.CounterOpts{
			Name: "activescale_query_bad_costs_total",
			Help: "Costs of pods or nodes that were no number between 0.001 and 1000, and were not used.",
		}),
	}
}

// result is what became of a query.
type result struct {
	metric         string // one that exists, or "other"
	pods, answered int
}

func (m *measures) observe(r result, err error, took time.Duration) {
	m.seconds.Observe(took.Seconds())
	m.queries.WithLabelValues(r.metric, r.word(err)).Inc()
	if r.pods > r.answered && (err == nil || apierrors.IsNotFound(err)) {
		m.missing.WithLabelValues(r.metric).Add(float64(r.pods - r.answered))
	}
}

func (r result) word(err error) string {
	switch {
	case err == nil && r.answered == r.pods:
		return "all"
	case err == nil:
		return "some"
	case r.metric == "other":
		return "unknown"
	case apierrors.IsNotFound(err):
		return "none"
	case apierrors.IsServiceUnavailable(err):
		return "unavailable"
	}
	return "error"
}
