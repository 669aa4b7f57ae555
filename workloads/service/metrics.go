package service

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// exporter publishes what the controller and the report read of a replica.
type exporter struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration prometheus.Histogram
	inside   atomic.Int64 // requests in the replica
}

// newExporter makes the metrics of a replica; each carries the labels
// component, replica and node.
func newExporter(cfg Config) *exporter {
	labels := prometheus.Labels{"component": cfg.Component, "replica": cfg.Replica, "node": cfg.Node}
	e := &exporter{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heartbed_requests_total", Help: "Requests answered, by caller replica and gRPC code.", ConstLabels: labels,
		}, []string{"caller_replica", "code"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heartbed_request_duration_seconds", Help: "Time from a request's arrival to its answer.", ConstLabels: labels,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}),
	}
	e.registry.MustRegister(e.requests, e.duration, // fails for a duplicate name only
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "heartbed_cpu_seconds_total", Help: "CPU time of the process, user and system.", ConstLabels: labels,
		}, processCPU),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "heartbed_in_flight", Help: "Requests in the replica, running or waiting.", ConstLabels: labels,
		}, func() float64 { return float64(e.inside.Load()) }))
	return e
}

// answered books an answer.
func (e *exporter) answered(caller, code string, took time.Duration) {
	e.requests.WithLabelValues(caller, code).Inc()
	e.duration.Observe(took.Seconds())
}

// handler serves /metrics, and /ready while ready says so.
func (e *exporter) handler(ready func() bool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	return mux
}
