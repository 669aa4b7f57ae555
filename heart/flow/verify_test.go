package flow

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawSolved draws a network that has an optimum, and solves it. Its supplies are
// those of a flow that was drawn first: with supplies of their own nine networks
// in ten have no flow, and rapid gives up.
func drawSolved(t *rapid.T) (*Network, *Solution) {
	n := drawNetwork(t)
	supply := make([]int64, n.Nodes())
	for e, cap := range n.cap {
		units := rapid.Int64Range(0, min(cap, 12)).Draw(t, "flow")
		supply[n.from[e]] += units
		supply[n.to[e]] -= units
	}
	for v, b := range supply {
		n.SetSupply(v, b)
	}
	s, err := n.Solve()
	if err != nil {
		t.Skip("the cost is unbounded")
	}
	return n, s
}

// dual returns the Lagrangian bound of the potentials: no flow costs less. ok
// is false if it is minus infinity.
func dual(n *Network, potential []int64) (bound int64, ok bool) {
	for v, b := range n.supply {
		bound -= b * potential[v]
	}
	for e := range n.from {
		r := n.cost[e] + potential[n.from[e]] - potential[n.to[e]]
		if r < 0 && n.cap[e] == Unlimited {
			return 0, false
		}
		if r < 0 {
			bound += r * n.cap[e]
		}
	}
	return bound, true
}

// Verify accepts potentials if and only if they prove the cost, by strong duality.
func TestVerifyJudgesPotentials(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, s := drawSolved(t)
		for range rapid.IntRange(0, 3).Draw(t, "moves") {
			v := rapid.IntRange(0, n.Nodes()-1).Draw(t, "node")
			s.Potential[v] += rapid.Int64Range(-3, 3).Draw(t, "by")
		}
		bound, ok := dual(n, s.Potential)
		if ok && bound == s.Cost {
			require.NoError(t, Verify(n, s))
		} else {
			require.Error(t, Verify(n, s))
		}
	})
}

// Verify accepts another flow if and only if it costs no more than the optimum.
func TestVerifyJudgesOtherFlows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, s := drawSolved(t)
		best := s.Cost
		costs := append([]int64(nil), n.cost...)
		for e := range n.cost {
			n.SetCost(e, rapid.Int64Range(0, 5).Draw(t, "other cost"))
		}
		other, err := n.Solve()
		require.NoError(t, err)
		copy(n.cost, costs)
		s.Flow = other.Flow
		s.Cost, err = totalCost(n.cost, s.Flow)
		require.NoError(t, err)
		if s.Cost == best {
			require.NoError(t, Verify(n, s))
		} else {
			require.Greater(t, s.Cost, best)
			require.ErrorContains(t, Verify(n, s), "reduced cost")
		}
	})
}

// Verify rejects a flow that loses or gains units, and a wrong cost.
func TestVerifyRejectsWrongUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, s := drawSolved(t)
		by := rapid.Int64Range(1, 1<<40).Draw(t, "by") * rapid.SampledFrom([]int64{-1, 1}).Draw(t, "sign")
		s.Cost += by
		require.ErrorContains(t, Verify(n, s), "the solution says")
		s.Cost -= by
		if n.Arcs() == 0 {
			return
		}
		e := rapid.IntRange(0, n.Arcs()-1).Draw(t, "arc")
		if n.from[e] == n.to[e] {
			return // units on a loop reach nobody
		}
		s.Flow[e] += by
		require.Error(t, Verify(n, s))
	})
}

func TestVerifyRefusals(t *testing.T) {
	n := build([]int64{3, 0, -3}, arcSpec{0, 1, Unlimited, 1}, arcSpec{1, 2, 2, 1}, arcSpec{0, 2, 9, 5})
	good := Solution{Flow: []int64{2, 2, 1}, Potential: []int64{0, 1, 5}, Cost: 9}
	require.NoError(t, Verify(n, &good))
	tests := []struct {
		name string
		s    *Solution
		want string
	}{
		{"nothing", nil, "does not fit"},
		{"too few flows", &Solution{Flow: good.Flow[:2], Potential: good.Potential}, "does not fit"},
		{"too few potentials", &Solution{Flow: good.Flow, Potential: good.Potential[:2]}, "does not fit"},
		{"negative flow", &Solution{Flow: []int64{-1, -1, 4}, Potential: good.Potential}, "arc 0 carries -1"},
		{"above capacity", &Solution{Flow: []int64{3, 3, 0}, Potential: good.Potential}, "arc 1 carries 3, outside 0..2"},
		{"units lost", &Solution{Flow: []int64{2, 1, 1}, Potential: good.Potential}, "node 1 with supply 0 is out of balance"},
		{"dearer way", &Solution{Flow: []int64{1, 1, 2}, Potential: good.Potential, Cost: 12}, "adding units would be cheaper"},
		{"potentials prove nothing", &Solution{Flow: good.Flow, Potential: []int64{0, 0, 5}, Cost: 9}, "taking units off would be cheaper"},
		{"wrong cost", &Solution{Flow: good.Flow, Potential: good.Potential, Cost: 8}, "the arcs cost 9, the solution says 8"},
		{"flows that would wrap", &Solution{Flow: []int64{math.MaxInt64, 2, 9}, Potential: good.Potential}, "out of balance"},
		{"potentials that would wrap", &Solution{Flow: good.Flow, Potential: []int64{math.MinInt64, 1, math.MaxInt64}, Cost: 9}, "reduced cost"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			require.ErrorContains(t, Verify(n, tc.s), tc.want)
		})
	}
	require.ErrorIs(t, Verify(build([]int64{1}), &Solution{Flow: []int64{}, Potential: []int64{0}}), ErrInvalid)
}

func TestTotalCostIsExact(t *testing.T) {
	const big = math.MaxInt64
	tests := []struct {
		name       string
		cost, flow []int64
		want       int64
		err        error
	}{
		{"signs cancel beyond 64 bits", []int64{big, -big, 5}, []int64{big, big, 2}, 10, nil},
		{"least value", []int64{-2}, []int64{1 << 62}, math.MinInt64, nil},
		{"one above the largest", []int64{2}, []int64{1 << 62}, 0, ErrOverflow},
		{"one below the least", []int64{-2, -1}, []int64{1 << 62, 1}, 0, ErrOverflow},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := totalCost(tc.cost, tc.flow)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, tc.want, got)
		})
	}
}
