package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config of an exporter.
type Config struct {
	Source   string // name of the node it runs on
	Targets  []Target
	Interval time.Duration // between two measurements of a target; default 5 s
	Options
}

// exporter keeps the metrics of one source.
type exporter struct {
	source   string
	registry *prometheus.Registry
	duration *prometheus.GaugeVec
	success  *prometheus.GaugeVec
}

func newExporter(source string) *exporter {
	e := &exporter{
		source: source, registry: prometheus.NewRegistry(),
		duration: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "probe_icmp_duration_seconds",
			Help: "Median round-trip time of the last measurement; absent if it failed. By TCP where ICMP is not permitted.",
		}, []string{"phase", "source", "target"}),
		success: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "probe_success", Help: "Whether the last measurement succeeded (1) or failed (0).",
		}, []string{"source", "target"}),
	}
	e.registry.MustRegister(e.duration, e.success) // fails for a duplicate name only
	return e
}

// book publishes one measurement.
func (e *exporter) book(target string, rtt time.Duration, err error) {
	if err != nil {
		e.duration.DeleteLabelValues("rtt", e.source, target)
		e.success.WithLabelValues(e.source, target).Set(0)
		return
	}
	e.duration.WithLabelValues("rtt", e.source, target).Set(rtt.Seconds())
	e.success.WithLabelValues(e.source, target).Set(1)
}

// Export measures every target again and again and serves /metrics on l until
// ctx ends.
func Export(ctx context.Context, l net.Listener, c Config) error {
	if c.Interval == 0 {
		c.Interval = 5 * time.Second
	}
	e := newExporter(c.Source)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	probing, stop := context.WithCancel(ctx)
	defer stop()
	var probers sync.WaitGroup
	for _, t := range c.Targets {
		probers.Go(func() { e.watch(probing, t, c) })
	}
	end := context.AfterFunc(probing, func() { server.Close() })
	defer end()
	err := server.Serve(l)
	stop()
	probers.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("export round-trip times of %s: %w", c.Source, err)
}

// watch measures one target until ctx ends.
func (e *exporter) watch(ctx context.Context, t Target, c Config) {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for {
		rtt, _, err := Measure(ctx, t, c.Options)
		if ctx.Err() != nil {
			return
		}
		e.book(t.Name, rtt, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
