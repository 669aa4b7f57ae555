package prom

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

// large is 400 replicas in a chain of five components, and what our exporters
// show when every replica calls every replica of the next component.
func large() (heart.Topology, string) {
	const components, each = 5, 80
	topology := heart.Topology{Nodes: []heart.Node{{Name: "n1"}}}
	var page strings.Builder
	for c := range components {
		component := fmt.Sprintf("c%d", c)
		if c > 0 {
			topology.Calls = append(topology.Calls, heart.Call{From: fmt.Sprintf("c%d", c-1), To: component})
		}
		for r := range each {
			name := fmt.Sprintf("%s-%d", component, r)
			topology.Replicas = append(topology.Replicas, heart.Replica{Name: name, Component: component, Node: "n1"})
			callers := map[string]float64{"gateway": float64(r)}
			if c > 0 {
				clear(callers)
				for caller := range each {
					callers[fmt.Sprintf("c%d-%d", c-1, caller)] = float64(caller)
				}
			}
			page.WriteString(ourPage(name, float64(r), callers))
		}
	}
	return topology, page.String()
}

// An observation of 400 replicas: its time and what it allocates, with seven
// samples a counter.
func BenchmarkObserve400(b *testing.B) {
	e := newExporter()
	defer e.Close()
	topology, page := large()
	e.test = "large"
	e.hold(page)
	s, err := launch(b.TempDir(), []*exporter{e}, "")
	if err != nil {
		b.Skip(err)
	}
	defer s.kill()
	for e.scrapes() < 8 {
		time.Sleep(every)
	}
	e.hold("") // no more
	o, err := New(Config{
		Address: s.URL, MaxAge: model.Duration(time.Hour), CPU: Query{Preset: ours}, Requests: Query{Preset: ours},
	}, nil)
	require.NoError(b, err)
	o.topology = constant(topology)
	b.ReportAllocs()
	var peak runtime.MemStats
	for b.Loop() {
		got, err := o.Observe(b.Context())
		require.NoError(b, err)
		require.Len(b, got.Replicas, len(topology.Replicas))
	}
	runtime.ReadMemStats(&peak)
	b.ReportMetric(float64(peak.HeapSys)/1e6, "heap-MB")
}
