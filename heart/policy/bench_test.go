package policy

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

// chain is a chain of components whose replicas are dealt over the nodes in
// turn; nodes differ in speed and every pair of them in round-trip time.
func chain(replicas, components, nodes int) heart.Observation {
	r := rand.New(rand.NewPCG(1, uint64(nodes)))
	o := heart.Observation{Window: 30 * time.Second, Replicas: make(map[string]heart.Sample, replicas)}
	slowness := make([]float64, nodes)
	for i := range nodes {
		o.Topology.Nodes = append(o.Topology.Nodes, heart.Node{Name: fmt.Sprintf("n%d", i+1)})
		slowness[i] = 1 + 2*r.Float64()
		row := make([]time.Duration, nodes)
		for j := range row {
			if i != j {
				row[j] = time.Duration(1+r.IntN(50_000)) * time.Microsecond
			}
		}
		o.Topology.RTT = append(o.Topology.RTT, row)
	}
	for c := range components {
		name := fmt.Sprintf("c%d", c+1)
		if c > 0 {
			o.Topology.Calls = append(o.Topology.Calls, heart.Call{From: fmt.Sprintf("c%d", c), To: name})
		}
		for i := range replicas / components {
			replica := heart.Replica{Name: fmt.Sprintf("%s-%d", name, i+1), Component: name, Node: o.Topology.Nodes[i%nodes].Name}
			o.Topology.Replicas = append(o.Topology.Replicas, replica)
			o.Replicas[replica.Name] = heart.Sample{CPUSeconds: 3 * slowness[i%nodes] * (0.9 + 0.2*r.Float64()), Requests: 600}
		}
	}
	return o
}

func BenchmarkStep(b *testing.B) {
	for _, name := range []string{"heart", "lata", "opttraffic"} {
		for _, replicas := range []int{100, 200, 400} {
			o := chain(replicas, 5, 5)
			b.Run(fmt.Sprintf("%s/%d", name, replicas), func(b *testing.B) {
				p := mustNew(b, name)
				b.ReportAllocs()
				for b.Loop() {
					_, err := p.Allocate(o, nil)
					require.NoError(b, err)
				}
			})
		}
	}
}

// BenchmarkLarge is one HEART step at 100,000 replicas of 20 components on
// 1,000 nodes, with the validation of its table.
func BenchmarkLarge(b *testing.B) {
	o := chain(100_000, 20, 1000)
	p := mustNew(b, "heart")
	m := &heart.Meter{Now: time.Now}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for b.Loop() {
		m.Start()
		d, err := p.Allocate(o, m)
		require.NoError(b, err)
		require.NoError(b, d.Table.Validate(o.Topology))
		m.Lap("validate")
	}
	runtime.ReadMemStats(&after)
	for stage, seconds := range m.Seconds {
		b.ReportMetric(seconds/float64(b.N), stage+"-s/op")
	}
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/1e6, "MB/op")
	b.ReportMetric(float64(after.Sys)/1e6, "MB-from-OS")
}
