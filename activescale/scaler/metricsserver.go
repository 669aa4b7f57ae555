package scaler

import (
	"math"
	"time"
)

// kubeletPeriod is how often the kubelet measures a container.
const kubeletPeriod = 10 * time.Second

// freshContainer is the age below which metrics-server does not guess the
// usage of a container that it has seen once.
const freshContainer = 10 * time.Second

// counter is a container's CPU counter as the kubelet read it.
type counter struct {
	at, started time.Duration
	cpu         float64 // core-seconds since started
}

// metricsServer is the path of CPU usage: the kubelet reads a counter, the
// server collects the newest reading at its resolution, and usage is the
// difference of two (sigs.k8s.io/metrics-server, pkg/storage/pod.go).
type metricsServer struct {
	rule       ratio
	target     int
	request    float64
	resolution time.Duration
	kubelet    timetable
	kubeletAt  time.Duration
	scrape     time.Duration
	read       map[int]counter // newest reading of the kubelet
	last, prev map[int]counter // of the server
}

func newMetricsServer(c Config, rule ratio) *metricsServer {
	return &metricsServer{
		rule: rule, target: int(math.Round(c.Target)), request: c.RequestCores, resolution: c.Every,
		kubelet: newTimetable(c.Seed, kubeletPeriod), scrape: phase(c.Seed, collectStream, c.Every),
		read: map[int]counter{}, last: map[int]counter{}, prev: map[int]counter{},
	}
}

func (m *metricsServer) next() time.Duration { return min(m.kubeletAt, m.scrape) }

func (m *metricsServer) collect(v View) {
	if m.kubeletAt <= v.Now {
		for _, p := range m.kubelet.due(v) {
			delete(m.read, p.ID)
			if p.Running {
				m.read[p.ID] = counter{at: v.Now, started: p.Started, cpu: p.CPUSeconds}
			}
		}
		m.kubeletAt = m.kubelet.soonest(v.Now)
	}
	if m.scrape <= v.Now {
		m.store(v)
		m.scrape += m.resolution
	}
}

// store takes over the kubelet's readings. A container that was started again
// has no earlier reading, and a pod whose container is down has none at all.
func (m *metricsServer) store(v View) {
	last, prev := map[int]counter{}, map[int]counter{}
	for _, p := range v.Pods {
		now, found := m.read[p.ID]
		if !found || !p.Running || now.started != p.Started {
			continue
		}
		last[p.ID] = now
		age := now.at - now.started
		before, seen := m.last[p.ID]
		switch {
		case age >= freshContainer && age < m.resolution:
			prev[p.ID] = counter{at: now.started, started: now.started}
		case !seen || now.started >= before.at:
		case now.at > before.at:
			prev[p.ID] = before
		default: // the kubelet has not measured again
			if older, found := m.prev[p.ID]; found && older.at < now.at {
				prev[p.ID] = older
			}
		}
	}
	m.last, m.prev = last, prev
}

// usage gives the mean cores of each pod that has two readings.
func (m *metricsServer) usage() map[int]sample {
	samples := make(map[int]sample, len(m.last))
	for id, b := range m.last {
		if a, found := m.prev[id]; found {
			window := b.at - a.at
			cores := (b.cpu - a.cpu) / window.Seconds()
			samples[id] = sample{milli: int64(math.Ceil(1000*cores - 1e-9)), at: b.at, window: window}
		}
	}
	return samples
}

func (m *metricsServer) propose(v View) (int, bool) {
	return m.rule.cpu(v, m.usage(), m.target, m.request)
}
