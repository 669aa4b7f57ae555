package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"heartbed/heart"
	"heartbed/heart/flow"
)

// window makes an observation of a component e with counts[i] replicas on node
// i; the first replica of a node is measured with samples[i], the others are
// idle.
func window(counts []int, samples ...heart.Sample) heart.Observation {
	o := heart.Observation{Replicas: map[string]heart.Sample{}}
	for n, count := range counts {
		node := fmt.Sprintf("n%d", n+1)
		o.Topology.Nodes = append(o.Topology.Nodes, heart.Node{Name: node})
		o.Topology.RTT = append(o.Topology.RTT, make([]time.Duration, len(counts)))
		for i := range count {
			name := fmt.Sprintf("e%d-%d", n+1, i+1)
			o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: name, Component: "e", Node: node})
			if i == 0 && n < len(samples) {
				o.Replicas[name] = samples[n]
			}
		}
	}
	return o
}

func trace(t require.TestingT, p heart.Policy, o heart.Observation) []heart.GroupTrace {
	d, err := p.Allocate(o, nil)
	require.NoError(t, err)
	return d.Stages.ATPM[0].Groups
}

func shares(groups []heart.GroupTrace) []float64 {
	var s []float64
	for _, g := range groups {
		s = append(s, g.Share)
	}
	return s
}

// HEART, ATPM: EWMA of CPU time a request, reuse without observation, mean of
// the valid groups for a new one, shares by n/E or 1/E. Vector A1.
func TestATPMShares(t *testing.T) {
	for shareBy, want := range map[string][]float64{
		"replicas": {0.48139, 0.18380, 0.12637, 0.20844},
		"groups":   {0.31700, 0.24207, 0.16642, 0.27451},
	} {
		t.Run(shareBy, func(t *testing.T) {
			p := mustNew(t, "heart", "alpha", "fixed", "alpha-fixed", "0.5", "shares", shareBy)
			// The window before: g4 does not exist yet.
			trace(t, p, window([]int{2, 1, 1}, heart.Sample{CPUSeconds: 2.2, Requests: 100},
				heart.Sample{CPUSeconds: 2.5, Requests: 100}, heart.Sample{CPUSeconds: 4, Requests: 100}))
			got := trace(t, p, window([]int{2, 1, 1, 1}, heart.Sample{CPUSeconds: 12, Requests: 600},
				heart.Sample{CPUSeconds: 9, Requests: 300}, heart.Sample{CPUSeconds: 1}))
			for i, e := range []float64{0.021, 0.0275, 0.040, 0.02425} {
				require.InDelta(t, e, got[i].EWMA, 1e-12, "E of g%d", i+1)
			}
			require.InDeltaSlice(t, want, shares(got), 5e-6)
			require.Nil(t, got[2].Load, "no requests, no load")
			require.Nil(t, got[3].Alpha)
			require.InDelta(t, 0.5, *got[0].Alpha, 0)
		})
	}
}

// HEART, ATPM: adaptive weight by the coefficient of variation. Vector A2.
func TestAlphaByVariation(t *testing.T) {
	loads := []float64{.020, .022, .019, .030, .021}
	require.InDelta(t, 0.175419, variation(loads), 1e-6)
	rule := alphaRule{kind: "cv", min: 0.2, max: 0.8, window: 5, cvRef: 0.25}
	require.InDelta(t, 0.621005, rule.weight(trend{loads: loads}), 1e-6)

	rule.down = true
	require.InDelta(t, 0.2+0.8-0.621005, rule.weight(trend{loads: loads}), 1e-6, "the other direction")

	// The same through the policy, which sees only the five newest loads.
	p := mustNew(t, "heart")
	var got []heart.GroupTrace
	for _, load := range append([]float64{9}, loads...) {
		got = trace(t, p, window([]int{1}, heart.Sample{CPUSeconds: load * 1000, Requests: 1000}))
	}
	require.InDelta(t, 0.621005, *got[0].Alpha, 1e-6)
}

// HEART, ATPM: adaptive weight by the tracking signal (Trigg and Leach 1967).
// Vector A3: errors +1, +1, -1 at phi = 0.2.
func TestAlphaByTrackingSignal(t *testing.T) {
	rule := alphaRule{kind: "trigg-leach", max: 1, phi: 0.2}
	state := trend{ewma: 10}
	for i, want := range []struct{ bias, scatter, alpha float64 }{{.2, .2, 1}, {.36, .36, 1}, {.088, .488, .180328}} {
		state.ewma = 10 // so that the errors are those of the vector
		load := []float64{11, 11, 9}[i]
		var weight float64
		state, weight = rule.update(state, load)
		require.InDelta(t, want.bias, state.bias, 1e-12)
		require.InDelta(t, want.scatter, state.scatter, 1e-12)
		require.InDelta(t, want.alpha, weight, 1e-6)
	}
	rule.min, rule.max = 0.3, 0.8
	require.Equal(t, 0.3, rule.weight(state), "kept to the range")
	require.Equal(t, 0.3, rule.weight(trend{}), "no error at all")
}

// HEART, ATPM: no load known is an equal split (vector A4), by groups or by
// replicas where their sizes differ.
func TestATPMCold(t *testing.T) {
	third := 1.0 / 3
	require.InDeltaSlice(t, []float64{third, third, third}, shares(trace(t, mustNew(t, "heart"), window([]int{2, 2, 2}))), 1e-12)
	require.InDeltaSlice(t, []float64{third, third, third}, shares(trace(t, mustNew(t, "heart"), window([]int{2, 1, 1}))), 1e-12)
	require.InDeltaSlice(t, []float64{.5, .25, .25}, shares(trace(t, mustNew(t, "heart", "cold", "replicas"), window([]int{2, 1, 1}))), 1e-12)
	// CPU below the resolution is no observation, not an infinite share.
	zero := window([]int{1, 1}, heart.Sample{CPUSeconds: 0, Requests: 500}, heart.Sample{CPUSeconds: 10, Requests: 500})
	got := trace(t, mustNew(t, "heart"), zero)
	require.Nil(t, got[0].Load)
	require.InDeltaSlice(t, []float64{.5, .5}, shares(got), 1e-12)
}

// HEART, ATPM: a replica with CPU time but no requests does not change the
// load of its group. Vector A5.
func TestATPMIdleReplica(t *testing.T) {
	o := window([]int{2}, heart.Sample{CPUSeconds: 12, Requests: 600})
	o.Replicas["e1-2"] = heart.Sample{CPUSeconds: 5}
	require.InDelta(t, 0.020, *trace(t, mustNew(t, "heart"), o)[0].Load, 1e-12)
}

// A new group takes the mean of the groups that kept an estimate when none is
// measured in this window; what is not measured again keeps its own.
func TestATPMWithoutNewLoads(t *testing.T) {
	p := mustNew(t, "heart")
	trace(t, p, window([]int{1, 1}, heart.Sample{CPUSeconds: 10, Requests: 1000}, heart.Sample{CPUSeconds: 30, Requests: 1000}))
	got := trace(t, p, window([]int{1, 1, 1}))
	for i, e := range []float64{.010, .030, .020} {
		require.InDelta(t, e, got[i].EWMA, 1e-12)
	}
}

// A group that is gone for a window is forgotten.
func TestATPMForgets(t *testing.T) {
	p := mustNew(t, "heart", "alpha", "fixed")
	load := func(ms float64) heart.Sample { return heart.Sample{CPUSeconds: ms, Requests: 1000} }
	trace(t, p, window([]int{1, 1}, load(10), load(90)))
	trace(t, p, window([]int{1, 0}, load(10)))
	got := trace(t, p, window([]int{1, 1}, load(10), load(30)))
	require.InDelta(t, 0.030, got[1].EWMA, 1e-12)
	require.Equal(t, 1.0, *got[1].Alpha)
}

// CPU time counts relative to the CPU limit where limits differ.
func TestATPMLimits(t *testing.T) {
	o := window([]int{1, 1}, heart.Sample{CPUSeconds: 10, Requests: 1000}, heart.Sample{CPUSeconds: 10, Requests: 1000})
	o.Topology.Replicas[0].CPULimit, o.Topology.Replicas[1].CPULimit = 0.5, 1
	require.InDeltaSlice(t, []float64{1. / 3, 2. / 3}, shares(trace(t, mustNew(t, "heart"), o)), 1e-12)
	require.InDeltaSlice(t, []float64{.5, .5}, shares(trace(t, mustNew(t, "heart", "limits", "off"), o)), 1e-12)
	o.Topology.Replicas[1].CPULimit = 0
	require.InDeltaSlice(t, []float64{.5, .5}, shares(trace(t, mustNew(t, "heart"), o)), 1e-12, "a limit is unknown")
}

// The cap moves all shares the same part of the way.
func TestATPMMaxChange(t *testing.T) {
	p := mustNew(t, "heart", "alpha", "last", "max-change", "0.1")
	trace(t, p, window([]int{1, 1, 1}))
	third := 1.0 / 3
	// Wanted are .6, .2, .2: the largest step is .2667, of which .1 is allowed.
	got := trace(t, p, window([]int{1, 1, 1}, heart.Sample{CPUSeconds: 10, Requests: 1000},
		heart.Sample{CPUSeconds: 30, Requests: 1000}, heart.Sample{CPUSeconds: 30, Requests: 1000}))
	require.InDeltaSlice(t, []float64{third + .1, third - .05, third - .05}, shares(got), 1e-12)
	again := trace(t, p, window([]int{1, 1, 1}, heart.Sample{CPUSeconds: 10, Requests: 1000},
		heart.Sample{CPUSeconds: 20, Requests: 1000}, heart.Sample{CPUSeconds: 20, Requests: 1000}))
	require.InDeltaSlice(t, []float64{.5, .25, .25}, shares(again), 1e-12, "a step within the cap is not cut")
}

// The ablations: trend off is equal shares by replica, last is no memory.
func TestATPMTrend(t *testing.T) {
	first := window([]int{2, 1}, heart.Sample{CPUSeconds: 10, Requests: 1000}, heart.Sample{CPUSeconds: 90, Requests: 1000})
	second := window([]int{2, 1}, heart.Sample{CPUSeconds: 20, Requests: 1000}, heart.Sample{CPUSeconds: 20, Requests: 1000})
	off := mustNew(t, "heart", "trend", "off")
	trace(t, off, first)
	got := trace(t, off, second)
	require.InDeltaSlice(t, []float64{2. / 3, 1. / 3}, shares(got), 1e-12)
	require.Nil(t, got[0].Alpha)
	require.Zero(t, got[0].EWMA)
	for _, params := range [][]string{{"trend", "last"}, {"alpha", "last"}} {
		last := mustNew(t, "heart", params...)
		trace(t, last, first)
		require.InDelta(t, 0.020, trace(t, last, second)[1].EWMA, 0)
	}
}

// A policy that failed remembers what it remembered before.
func TestATPMMemorySurvivesErrors(t *testing.T) {
	a, b := mustNew(t, "heart"), mustNew(t, "heart")
	first := window([]int{1, 1}, heart.Sample{CPUSeconds: 10, Requests: 1000}, heart.Sample{CPUSeconds: 90, Requests: 1000})
	second := window([]int{1, 1}, heart.Sample{CPUSeconds: 20, Requests: 1000}, heart.Sample{CPUSeconds: 20, Requests: 1000})
	trace(t, a, first)
	trace(t, b, first)
	// A round-trip time of three centuries overflows the cost of the flow, late
	// in the call.
	broken := window([]int{1, 1}, heart.Sample{CPUSeconds: 500, Requests: 1})
	broken.Topology.Replicas = append(broken.Topology.Replicas, heart.Replica{Name: "f1", Component: "f", Node: "n2"})
	broken.Topology.Calls = []heart.Call{{From: "e", To: "f"}}
	broken.Topology.RTT[0][1] = 1<<63 - 1
	_, err := a.Allocate(broken, nil)
	require.ErrorIs(t, err, flow.ErrOverflow)
	require.ErrorContains(t, err, "call e to f")
	require.Equal(t, trace(t, b, second), trace(t, a, second))
}

// Whatever the loads, a component's shares add up to 1 and a group with more
// CPU time a request never gets more a replica.
func TestATPMProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counts := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 6).Draw(t, "counts")
		p := mustNew(t, "heart")
		for range rapid.IntRange(1, 6).Draw(t, "windows") {
			var samples []heart.Sample
			for range counts {
				samples = append(samples, heart.Sample{
					CPUSeconds: rapid.Float64Range(0, 100).Draw(t, "cpu"), Requests: rapid.Float64Range(0, 1e4).Draw(t, "requests"),
				})
			}
			got := trace(t, p, window(counts, samples...))
			sum := 0.0
			for i, a := range got {
				sum += a.Share
				for j, b := range got {
					if a.EWMA > b.EWMA && b.EWMA > 0 {
						require.LessOrEqual(t, a.Share/float64(counts[i]), b.Share/float64(counts[j])*(1+1e-9))
					}
				}
			}
			require.InDelta(t, 1, sum, 1e-9)
		}
	})
}
