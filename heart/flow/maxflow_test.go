package flow

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMaxFlow(t *testing.T) {
	zeros := make([]int64, 6)
	tests := []struct {
		name  string
		n     *Network
		value int64
	}{
		{"no arcs", build(zeros), 0},
		{"one arc", build(zeros, arcSpec{0, 5, 7, 0}), 7},
		{"unlimited arcs around a narrow one",
			build(zeros, arcSpec{0, 1, Unlimited, 0}, arcSpec{1, 2, 4, 0}, arcSpec{2, 5, Unlimited, 0}), 4},
		{"parallel arcs and a loop", build(zeros, arcSpec{0, 5, 2, 0}, arcSpec{0, 5, 3, 0}, arcSpec{0, 0, Unlimited, 0}), 5},
		{"only backwards", build(zeros, arcSpec{5, 0, 3, 0}), 0},
		{"units must be sent back over the middle arc", // the first shortest path takes 1-4
			build(zeros, arcSpec{0, 1, 1, 0}, arcSpec{0, 2, 1, 0}, arcSpec{1, 4, 1, 0}, arcSpec{1, 3, 1, 0},
				arcSpec{2, 4, 1, 0}, arcSpec{3, 5, 1, 0}, arcSpec{4, 5, 1, 0}), 2},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r, err := tc.n.MaxFlow(0, 5)
			require.NoError(t, err)
			require.Equal(t, tc.value, r.Value)
			requireMaximum(t, tc.n, 0, 5, r)
		})
	}
}

// requireMaximum checks that a flow is within bounds, conserved, and equal to
// the capacity of the cut that comes with it.
func requireMaximum(t require.TestingT, n *Network, source, sink int, r *MaxFlowResult) {
	supplies := append([]int64(nil), n.supply...)
	clear(n.supply)
	n.supply[source], n.supply[sink] = r.Value, -r.Value
	require.NoError(t, verifyUnits(n, r.Flow))
	copy(n.supply, supplies)

	require.True(t, r.SourceSide[source])
	require.False(t, r.SourceSide[sink])
	var cut int64
	for e := range n.from {
		if r.SourceSide[n.from[e]] && !r.SourceSide[n.to[e]] {
			require.NotEqual(t, Unlimited, n.cap[e])
			cut += n.cap[e]
		}
	}
	require.Equal(t, cut, r.Value)
}

func TestMaxFlowEqualsMinCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		source := rapid.IntRange(0, n.Nodes()-1).Draw(t, "source")
		sink := rapid.IntRange(0, n.Nodes()-1).Draw(t, "sink")
		r, err := n.MaxFlow(source, sink)
		if source == sink {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		if err != nil {
			require.ErrorIs(t, err, ErrUnbounded)
			require.True(t, reachableUnlimited(n, source, sink))
			return
		}
		requireMaximum(t, n, source, sink, r)
	})
}

// reachableUnlimited says whether a path of unlimited arcs leads from a to b.
func reachableUnlimited(n *Network, a, b int) bool {
	reached := map[int32]bool{int32(a): true}
	for range n.Nodes() {
		for e := range n.from {
			if n.cap[e] == Unlimited && reached[n.from[e]] {
				reached[n.to[e]] = true
			}
		}
	}
	return reached[int32(b)]
}

func TestMaxFlowRefusals(t *testing.T) {
	two := []int64{0, 0}
	_, err := build(two).MaxFlow(0, 2)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = build(two).MaxFlow(-1, 1)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = build(two, arcSpec{0, 1, -4, 0}).MaxFlow(0, 1)
	require.ErrorContains(t, err, "capacity -4 of arc 0")
	_, err = build(two, arcSpec{0, 1, Unlimited - 1, 0}).MaxFlow(0, 1)
	require.ErrorIs(t, err, ErrOverflow)
	_, err = build(two, arcSpec{0, 1, Unlimited, 0}).MaxFlow(0, 1)
	require.ErrorIs(t, err, ErrUnbounded)
	_, _, err = build([]int64{1, 1}).Routable()
	require.ErrorIs(t, err, ErrInvalid)
}

// A transport problem is feasible if and only if no set of sources supplies
// more than its neighbours take (Gale 1957). The solver, the maximum flow and
// the count over all sets must agree.
func TestBipartiteFeasibility(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const sources, sinks = 4, 4
		weights := rapid.SliceOfN(rapid.Int64Range(0, 9), sources, sources)
		supply, demand := weights.Draw(t, "supply"), make([]int64, sinks)
		for _, s := range supply {
			for range s {
				demand[rapid.IntRange(0, sinks-1).Draw(t, "taker")]++
			}
		}
		costs := make([][]int64, sources)
		for i := range costs {
			costs[i] = rapid.SliceOfN(rapid.Int64Range(-1, 3), sinks, sinks).Draw(t, "costs")
		}
		n := transport(supply, demand, costs)
		short := shortage(supply, demand, costs)
		routed, total, err := n.Routable()
		require.NoError(t, err)
		require.Equal(t, short, total-routed)
		s, err := n.Solve()
		if short > 0 {
			require.ErrorIs(t, err, ErrInfeasible)
			return
		}
		require.NoError(t, err)
		require.NoError(t, Verify(n, s))
	})
}

// shortage returns how much the worst set of sources supplies beyond what its
// neighbours take; links of cost -1 do not exist.
func shortage(supply, demand []int64, costs [][]int64) int64 {
	var worst int64
	for set := range 1 << len(supply) {
		var sent, taken int64
		reached := make([]bool, len(demand))
		for i, s := range supply {
			if set>>i&1 == 0 {
				continue
			}
			sent += s
			for j, c := range costs[i] {
				if c >= 0 && !reached[j] {
					reached[j] = true
					taken += demand[j]
				}
			}
		}
		worst = max(worst, sent-taken)
	}
	return worst
}
