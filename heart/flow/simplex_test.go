package flow

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// arcSpec is one arc of a test network.
type arcSpec struct {
	from, to  int
	cap, cost int64
}

func build(supplies []int64, arcs ...arcSpec) *Network {
	n := New(len(supplies), len(arcs))
	for _, s := range supplies {
		n.AddNode(s)
	}
	for _, a := range arcs {
		n.AddArc(a.from, a.to, a.cap, a.cost)
	}
	return n
}

// transport builds the complete bipartite network in which arc i*len(demand)+j
// goes from source i to sink j. A cost of -1 leaves the link out (capacity 0).
func transport(supply, demand []int64, costs [][]int64) *Network {
	n := New(len(supply)+len(demand), len(supply)*len(demand))
	for _, s := range supply {
		n.AddNode(s)
	}
	for _, d := range demand {
		n.AddNode(-d)
	}
	for i, row := range costs {
		for j, c := range row {
			if c < 0 {
				n.AddArc(i, len(supply)+j, 0, 0)
			} else {
				n.AddArc(i, len(supply)+j, Unlimited, c)
			}
		}
	}
	return n
}

// Vectors N1 to N5 and L1 of the reference notes on HEART's and LATA's flow stage, with and
// without the links that the filter takes out there.
func TestTransportVectors(t *testing.T) {
	same := [][]int64{{7, 7, 7}, {7, 7, 7}}
	rtt := func(far int64) [][]int64 {
		n1, n2, n3 := []int64{0, 10, far}, []int64{10, 0, 10}, []int64{far, 10, 0}
		return [][]int64{n1, n2, n3, n1} // d1 and d4 share node 1
	}
	hundred := []int64{100, 100, 100, 100}
	demands := []int64{134, 133, 133}
	tests := []struct {
		name           string
		supply, demand []int64
		costs          [][]int64
		cost           int64
		flow           []int64 // nil where the optimum is not unique
	}{
		{"N1", []int64{60, 40}, []int64{30, 45, 25}, [][]int64{{1, 10, 4}, {8, 2, 6}}, 260, []int64{30, 5, 25, 0, 40, 0}},
		{"N2 unfiltered", []int64{50, 50}, []int64{50, 50}, [][]int64{{10, 80}, {80, 100}}, 5500, []int64{50, 0, 0, 50}},
		{"N2 without the slowest", []int64{50, 50}, []int64{50, 50}, [][]int64{{10, 80}, {80, -1}}, 8000, []int64{0, 50, 50, 0}},
		{"N3 without the slowest", []int64{60, 40}, []int64{30, 45, 25}, [][]int64{{1, 3, -1}, {4, 2, 5}}, 275, []int64{30, 30, 0, 0, 15, 25}},
		{"N3 reinstated", []int64{80, 20}, []int64{30, 40, 30}, [][]int64{{1, 3, 60}, {4, 2, 5}}, 850, []int64{30, 40, 10, 0, 0, 20}},
		{"N4 all equal", []int64{60, 40}, []int64{30, 45, 25}, same, 700, nil},
		{"N5 one pair", []int64{100}, []int64{100}, [][]int64{{13}}, 1300, []int64{100}},
		{"L1", hundred, demands, rtt(22), 990, nil},
		{"L1 closer", hundred, demands, rtt(18), 924, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n := transport(tc.supply, tc.demand, tc.costs)
			s, err := n.Solve()
			require.NoError(t, err)
			require.NoError(t, Verify(n, s))
			require.Equal(t, tc.cost, s.Cost)
			if tc.flow != nil {
				require.Equal(t, tc.flow, s.Flow)
			}
		})
	}
}

func TestNetworks(t *testing.T) {
	tests := []struct {
		name string
		n    *Network
		cost int64
		flow []int64 // nil where the optimum is not unique
	}{
		{"empty", new(Network), 0, []int64{}},
		{"isolated nodes", build([]int64{0, 0, 0}), 0, []int64{}},
		{"two components", build([]int64{3, -3, 2, -2}, arcSpec{0, 1, 5, 4}, arcSpec{2, 3, Unlimited, -1}), 10, []int64{3, 2}},
		{"diamond prefers the cheap way up to its capacity",
			build([]int64{4, 0, 0, -4}, arcSpec{0, 1, 3, 1}, arcSpec{1, 3, 3, 1}, arcSpec{0, 2, 9, 5}, arcSpec{2, 3, 9, 5}), 16, []int64{3, 3, 1, 1}},
		{"parallel arcs fill by cost",
			build([]int64{7, -7}, arcSpec{0, 1, 4, 9}, arcSpec{0, 1, 2, 1}, arcSpec{0, 1, 3, 5}), 35, []int64{2, 2, 3}},
		{"arc without capacity is not used", build([]int64{1, -1}, arcSpec{0, 1, 0, -9}, arcSpec{0, 1, 1, 3}), 3, []int64{0, 1}},
		{"loop at a cost stays empty", build([]int64{1, -1}, arcSpec{0, 0, 5, 2}, arcSpec{0, 1, 1, 3}), 3, []int64{0, 1}},
		{"loop at a gain is filled", build([]int64{0}, arcSpec{0, 0, 5, -2}), -10, []int64{5}},
		{"cycle at a gain is filled without any supply",
			build([]int64{0, 0, 0}, arcSpec{0, 1, 4, -3}, arcSpec{1, 2, 6, 1}, arcSpec{2, 0, 5, 1}), -4, []int64{4, 4, 4}},
		{"cycle of cost zero", build([]int64{1, -1}, arcSpec{0, 1, Unlimited, 0}, arcSpec{1, 0, Unlimited, 0}), 0, nil},
		{"transshipment against an arc's cost",
			build([]int64{5, 0, -5}, arcSpec{0, 1, Unlimited, -7}, arcSpec{1, 2, 5, 3}, arcSpec{0, 2, Unlimited, -3}), -20, []int64{5, 5, 0}},
		{"exactly the capacity", build([]int64{5, -5}, arcSpec{0, 1, 5, 1}), 5, []int64{5}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := tc.n.Solve()
			require.NoError(t, err)
			require.NoError(t, Verify(tc.n, s))
			require.Equal(t, tc.cost, s.Cost)
			if tc.flow != nil {
				require.Equal(t, tc.flow, s.Flow)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	const huge = math.MaxInt64 / 4
	tests := []struct {
		name string
		n    *Network
		want error
		text string
	}{
		{"no arcs", build([]int64{2, -2}), ErrInfeasible, "2 of 2 units"},
		{"too little capacity", build([]int64{5, -5}, arcSpec{0, 1, 3, 1}), ErrInfeasible, "2 of 5 units"},
		{"wrong direction", build([]int64{5, -5}, arcSpec{1, 0, Unlimited, 1}), ErrInfeasible, "5 of 5 units"},
		{"demand in another component", build([]int64{1, 0, 0, -1}, arcSpec{0, 1, 9, 1}, arcSpec{2, 3, 9, 1}), ErrInfeasible, "1 of 1 units"},
		{"cycle at a gain without capacity",
			build([]int64{0, 0}, arcSpec{0, 1, Unlimited, 1}, arcSpec{1, 0, Unlimited, -2}), ErrUnbounded, "negative cost"},
		{"loop at a gain without capacity", build([]int64{0}, arcSpec{0, 0, Unlimited, -1}), ErrUnbounded, "negative cost"},
		{"infeasible goes before unbounded", build([]int64{1, -1}, arcSpec{0, 0, Unlimited, -1}), ErrInfeasible, "1 of 1 units"},
		{"supplies do not balance", build([]int64{5, -4}, arcSpec{0, 1, 9, 1}), ErrInvalid, "supplies add up to 1"},
		{"negative capacity", build([]int64{1, -1}, arcSpec{0, 1, -1, 1}), ErrInvalid, "capacity -1 of arc 0"},
		{"arc to an unknown node", build([]int64{1, -1}, arcSpec{0, 2, 1, 1}), ErrInvalid, "from node 0 to node 2"},
		{"arc from a negative node", build([]int64{1, -1}, arcSpec{-1, 0, 1, 1}), ErrInvalid, "from node -1"},
		{"cost beyond the range", build([]int64{1, -1}, arcSpec{0, 1, 1, math.MinInt64}), ErrOverflow, "cost -9223372036854775808 of arc 0"},
		{"costs whose sum along a path would wrap", build([]int64{0, 0}, arcSpec{0, 1, 1, math.MaxInt64 / 16}), ErrOverflow, "paths of up to 2 nodes"},
		{"capacities whose sum would wrap", build([]int64{0, 0}, arcSpec{0, 1, huge, 0}, arcSpec{0, 1, huge, 0}), ErrOverflow, "finite capacities up to arc"},
		{"supplies whose sum would wrap", build([]int64{huge, huge, -huge, -huge}), ErrOverflow, "supplies up to node 0"},
		{"least int64 as supply", build([]int64{math.MinInt64, 0}), ErrOverflow, "supplies up to node 0"},
		{"total cost that would wrap", build([]int64{1 << 40, -1 << 40}, arcSpec{0, 1, Unlimited, 1 << 40}), ErrOverflow, "total cost"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			s, err := tc.n.Solve()
			require.Nil(t, s)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.text)
		})
	}
}

// All faults of a network are reported at once.
func TestSolveReportsAllFaults(t *testing.T) {
	n := build([]int64{5, -4}, arcSpec{0, 7, 1, 1}, arcSpec{0, 1, -3, 1})
	_, err := n.Solve()
	require.ErrorContains(t, err, "node 7")
	require.ErrorContains(t, err, "capacity -3")
	require.ErrorContains(t, err, "supplies add up to 1")
}

// Numbers at the edge of what is accepted are solved exactly.
func TestLargestNumbers(t *testing.T) {
	const cost = math.MaxInt64/8/4 - 1
	n := build([]int64{1, 0, -1}, arcSpec{0, 1, Unlimited, cost}, arcSpec{1, 2, Unlimited, -cost}, arcSpec{0, 2, 1, cost})
	s, err := n.Solve()
	require.NoError(t, err)
	require.NoError(t, Verify(n, s))
	require.Zero(t, s.Cost)

	const units = math.MaxInt64 / 8
	n = build([]int64{units, -units}, arcSpec{0, 1, Unlimited, 7})
	s, err = n.Solve()
	require.NoError(t, err)
	require.NoError(t, Verify(n, s))
	require.Equal(t, int64(units)*7, s.Cost)
}
