package flow

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// denseTransport draws a square transport problem with random costs in
// 50..20050 and demands after Zipf's law. Supplies and demands sum to 1e6.
func denseTransport(size int, rng *rand.Rand) *Network {
	n := New(2*size, size*size)
	spread := func(sign int64, weight func(int) float64) {
		sum, left := 0.0, int64(1_000_000)
		for i := range size {
			sum += weight(i)
		}
		for i := range size {
			units := int64(1e6 * weight(i) / sum)
			left -= units
			if i == size-1 {
				units += left
			}
			n.AddNode(sign * units)
		}
	}
	spread(1, func(int) float64 { return 1 })
	spread(-1, func(j int) float64 { return 1 / float64(1+(j*7)%size) })
	for e := range size * size {
		n.AddArc(e/size, size+e%size, Unlimited, 50+rng.Int64N(20_001))
	}
	return n
}

// jitter moves every cost by up to one percent.
func jitter(n *Network, rng *rand.Rand) {
	for e, c := range n.cost {
		n.SetCost(e, c+int64(float64(c)*(rng.Float64()*0.02-0.01)))
	}
}

func benchmarkSizes(b *testing.B, run func(b *testing.B, n *Network, rng *rand.Rand)) {
	for _, size := range []int{5, 10, 100, 400, 800} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, uint64(size)))
			run(b, denseTransport(size, rng), rng)
		})
	}
}

func BenchmarkCold(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n *Network, _ *rand.Rand) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := n.Solve(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkWarm(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n *Network, rng *rand.Rand) {
		var s Solver
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Solve(n); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			jitter(n, rng)
			b.StartTimer()
		}
	})
}

func BenchmarkRoutable(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n *Network, _ *rand.Rand) {
		for b.Loop() {
			if routed, total, err := n.Routable(); err != nil || routed != total {
				b.Fatal(routed, total, err)
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, n *Network, _ *rand.Rand) {
		s, err := n.Solve()
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if err := Verify(n, s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
