package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"heartbed/activescale/store"
)

// injected is the annotation that Istio leaves on a pod with a sidecar.
const injected = "sidecar.istio.io/status"

// lookEvery is how often the coverage is counted: each time all pods with a
// sidecar are read from the store.
const lookEvery = 30 * time.Second

// coverage knows which pods should push and do not.
type coverage struct {
	pods    *pods
	store   store.Store
	ttl     time.Duration
	silent  prometheus.Gauge
	sidecar prometheus.Gauge

	mu    sync.Mutex
	total int
	names []string // of silent pods
}

func newCoverage(p *pods, s store.Store, ttl time.Duration, registry prometheus.Registerer) *coverage {
	c := &coverage{
		pods: p, store: s, ttl: ttl,
		silent:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "activescale_pods_silent", Help: "Live pods with a sidecar of Istio and no fresh sample, started at least four flushes ago."}),
		sidecar: prometheus.NewGauge(prometheus.GaugeOpts{Name: "activescale_pods_sidecar", Help: "Live pods with a sidecar of Istio, started at least four flushes ago."}),
	}
	registry.MustRegister(c.silent, c.sidecar)
	return c
}

// keep counts now and then until ctx ends.
func (c *coverage) keep(ctx context.Context) {
	for {
		if c.pods.synced() {
			c.look(ctx, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// look counts once. A store that fails is told of elsewhere, and leaves what is
// known.
func (c *coverage) look(ctx context.Context, now time.Time) {
	list, err := c.pods.lister.List(labels.Everything())
	if err != nil {
		return
	}
	var due []store.Pod
	for _, p := range list {
		if c.pushes(p, now) {
			due = append(due, store.Pod{Namespace: p.Namespace, Name: p.Name})
		}
	}
	found, err := c.store.Get(ctx, due)
	if err != nil {
		return
	}
	var names []string
	for _, p := range due {
		if _, fresh := found[p]; !fresh {
			names = append(names, p.String())
		}
	}
	slices.Sort(names)
	c.silent.Set(float64(len(names)))
	c.sidecar.Set(float64(len(due)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total, c.names = len(due), names
}

// pushes says whether a pod should have pushed by now.
func (c *coverage) pushes(p *corev1.Pod, now time.Time) bool {
	return isLive(p) && p.Annotations[injected] != "" && age(p, now) >= c.ttl
}

func (c *coverage) degraded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) == 0 {
		return nil
	}
	few := c.names[:min(len(c.names), 5)]
	return []string{fmt.Sprintf("%d of %d pods with a sidecar do not push, such as %s: see activescale doctor", len(c.names), c.total, strings.Join(few, ", "))}
}
