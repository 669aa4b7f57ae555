package main

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"heartbed/heart"
)

// metrics are what heart tells of itself.
type metrics struct {
	registry *prometheus.Registry
	leader   prometheus.Gauge
	age      prometheus.Gauge
	steps    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	success  prometheus.Gauge
	share    *prometheus.GaugeVec
	moved    prometheus.Histogram
	last     map[[3]string]float64 // share of a route's group, last step
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		leader:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "heart_leader", Help: "1 while this process decides."}),
		age:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "heart_observation_age_seconds", Help: "How long ago the newest observation ended when it was made."}),
		steps:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "heart_steps_total", Help: "Steps, by the stage that failed; none = all went well."}, []string{"failed"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "heart_stage_seconds", Help: "Time a stage of a step took.", Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}, []string{"stage"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{Name: "heart_last_success_timestamp_seconds", Help: "When a step last put its table into force."}),
		share:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "heart_share_ratio", Help: "Part of a caller group's requests that the table in force sends to a group."}, []string{"from", "to", "group"}),
		moved: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "heart_share_moved_ratio", Help: "Part of a route's requests that a step sends elsewhere than the step before.", Buckets: prometheus.LinearBuckets(0, 0.1, 11),
		}),
		last: map[[3]string]float64{},
	}
	m.registry.MustRegister(m.leader, m.age, m.steps, m.seconds, m.success, m.share, m.moved,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// step counts the outcome of one.
func (m *metrics) step(s heart.Step, err error) {
	if err != nil {
		stage, _, _ := strings.Cut(err.Error(), ":")
		m.steps.WithLabelValues(stage).Inc()
		return
	}
	m.steps.WithLabelValues("none").Inc()
	m.success.SetToCurrentTime()
	for stage, seconds := range s.Seconds {
		m.seconds.WithLabelValues(stage).Observe(seconds)
	}
	m.shares(s.Decision.Table)
}

// shares shows those of the table in force, and only those.
func (m *metrics) shares(table heart.RoutingTable) {
	now := map[[3]string]float64{}
	m.share.Reset()
	for _, r := range table.Routes {
		sum := 0.0
		for _, s := range r.Shares {
			sum += float64(s.Weight)
		}
		moved, known := 0.0, false
		for _, s := range r.Shares {
			key := [3]string{r.From, r.To, s.To}
			now[key] = float64(s.Weight) / sum
			before, had := m.last[key]
			known = known || had
			moved += max(0, now[key]-before)
			m.share.WithLabelValues(key[:]...).Set(now[key])
		}
		if known {
			m.moved.Observe(moved)
		}
	}
	m.last = now
}
