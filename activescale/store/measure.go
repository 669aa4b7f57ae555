package store

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Measures are the Prometheus metrics of a store. Nil counts nothing.
type Measures struct {
	seconds   *prometheus.HistogramVec
	errors    *prometheus.CounterVec
	exchanges prometheus.Counter
	garbage   prometheus.Counter
	older     prometheus.Counter
	degraded  prometheus.Gauge
}

// NewMeasures registers the metrics; it panics if they are registered already.
func NewMeasures(r prometheus.Registerer) *Measures {
	f := promauto.With(r)
	return &Measures{
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "activescale_store_seconds",
			Help:    "How long an operation of the store took, failed ones too.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 2.5, 13), // 10 us to 0.6 s
		}, []string{"store", "operation"}),
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "activescale_store_errors_total",
			Help: "Operations of the store that failed.",
		}, []string{"store", "operation"}),
		exchanges: f.NewCounter(prometheus.CounterOpts{
			Name: "activescale_store_redis_exchanges_total",
			Help: "Requests to a Redis server that were answered by one round trip each, whatever number of commands they carried.",
		}),
		garbage: f.NewCounter(prometheus.CounterOpts{
			Name: "activescale_store_garbage_total",
			Help: "Keys in Redis that held no sample; their pods count as missing.",
		}),
		older: f.NewCounter(prometheus.CounterOpts{
			Name: "activescale_store_older_total",
			Help: "Samples that were dropped in Redis because it had a newer one of the pod.",
		}),
		degraded: f.NewGauge(prometheus.GaugeOpts{
			Name: "activescale_store_degraded",
			Help: "1 while Redis fails and this replica answers from its own samples.",
		}),
	}
}

// Around measures the operations of a store under the name that it is given.
func (m *Measures) Around(s Store, name string) Store { return &measured{s, m, name} }

type measured struct {
	Store
	m    *Measures
	name string
}

func (s *measured) Open(ctx context.Context) (uint64, error) {
	start := time.Now()
	epoch, err := s.Store.Open(ctx)
	s.m.done(s.name, "open", start, err)
	return epoch, err
}

func (s *measured) Put(ctx context.Context, pod Pod, sample Sample) error {
	start := time.Now()
	err := s.Store.Put(ctx, pod, sample)
	s.m.done(s.name, "put", start, err)
	return err
}

func (s *measured) Get(ctx context.Context, pods []Pod) (map[Pod]Sample, error) {
	start := time.Now()
	found, err := s.Store.Get(ctx, pods)
	s.m.done(s.name, "get", start, err)
	return found, err
}

func (m *Measures) done(store, operation string, start time.Time, err error) {
	m.seconds.WithLabelValues(store, operation).Observe(time.Since(start).Seconds())
	if err != nil {
		m.errors.WithLabelValues(store, operation).Inc()
	}
}
