package workloads

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestDrawsGoOnElsewhere carries a seed over the wire half-way: a visit costs
// what it would have cost here.
func TestDrawsGoOnElsewhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := RequestDraws(rapid.Uint64().Draw(t, "trial"), 1, rapid.Uint64().Draw(t, "serial"))
		component, step := rapid.IntRange(0, 20).Draw(t, "component"), rapid.IntRange(0, 10).Draw(t, "step")
		here := request.Child(component, step, rapid.IntRange(0, 9).Draw(t, "call"))
		there := NewDraws(here.Seed())
		a, b := NewSampler(Distribution{Kind: "lognormal", CV: 0.7}), NewSampler(Distribution{Kind: "lognormal", CV: 0.7})
		for range 3 {
			require.Equal(t, a.Factor(&here), b.Factor(&there))
		}
	})
}

// TestSeedsArePartOfTheFormat pins the first draws: services and simulators
// of different versions must agree on what a request costs.
func TestSeedsArePartOfTheFormat(t *testing.T) {
	require.Equal(t, []uint64{1, 1, 3}, []uint64{WarmupRun, MeasuredRun(false), MeasuredRun(true)})
	d := RequestDraws(1, 1, 1)
	require.Equal(t, uint64(10719159957804082882), d.Seed())
	require.Equal(t, uint64(15974038649713976970), d.Child(1, 0, 0).Seed())
	require.Equal(t, 0.820027794071776, NewSampler(Distribution{Kind: "exponential"}).Factor(&d))
}

func TestSiblingsDiffer(t *testing.T) {
	d := RequestDraws(1, 1, 1)
	seen := map[uint64]bool{d.Seed(): true}
	for component := range 20 {
		for step := range 10 {
			for call := range 3 {
				seen[d.Child(component, step, call).Seed()] = true
			}
		}
	}
	require.Len(t, seen, 601)
}

// TestFactorsHaveTheirMoments draws the first factor of many requests. The
// bounds are five standard errors of the mean.
func TestFactorsHaveTheirMoments(t *testing.T) {
	const n = 40_000
	for _, d := range []Distribution{{}, {Kind: "deterministic"}, {Kind: "exponential"}, {Kind: "lognormal", CV: 0.7}, {Kind: "lognormal"}} {
		cv := d.CV
		if d.Kind == "exponential" {
			cv = 1
		}
		s, sum, squares := NewSampler(d), 0.0, 0.0
		for i := range uint64(n) {
			draws := RequestDraws(7, 1, i+1)
			f := s.Factor(&draws)
			sum += f
			squares += f * f
		}
		mean := sum / n
		require.InDelta(t, 1, mean, 5*cv/math.Sqrt(n)+1e-12, d)
		require.InDelta(t, cv, math.Sqrt(max(0, squares/n-mean*mean)), 0.05, d)
	}
}

func TestDecisions(t *testing.T) {
	const n = 10_000
	s := NewSampler(Distribution{})
	happened, chosen := 0, [3]int{}
	for i := range uint64(n) {
		d := RequestDraws(3, 1, i+1)
		if s.Happens(&d, 0.25) {
			happened++
		}
		chosen[s.Choose(&d, []float64{0.2, 0.5, 0.3})]++
	}
	require.InDelta(t, 0.25*n, happened, 220) // five standard deviations
	require.InDelta(t, 0.2*n, chosen[0], 200)
	require.InDelta(t, 0.5*n, chosen[1], 250)

	d := RequestDraws(3, 1, 1)
	before := d
	require.True(t, s.Happens(&d, 0), "0 is always")
	require.True(t, s.Happens(&d, 1))
	require.Equal(t, before, d, "what is certain takes no draw")
}
