package flow

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawNetwork draws a small general network: negative costs, parallel arcs,
// loops, unlimited and zero capacities, balanced supplies; often infeasible.
func drawNetwork(t *rapid.T) *Network {
	nodes := rapid.IntRange(1, 8).Draw(t, "nodes")
	n := New(nodes, 24)
	for range nodes {
		n.AddNode(0)
	}
	drawSupplies(t, n)
	for range rapid.IntRange(0, 24).Draw(t, "arcs") {
		drawArc(t, n)
	}
	return n
}

func drawArc(t *rapid.T, n *Network) {
	node := rapid.IntRange(0, n.Nodes()-1)
	cap := rapid.OneOf(rapid.Int64Range(0, 12), rapid.Just(Unlimited)).Draw(t, "cap")
	n.AddArc(node.Draw(t, "from"), node.Draw(t, "to"), cap, rapid.Int64Range(-4, 12).Draw(t, "cost"))
}

func drawSupplies(t *rapid.T, n *Network) {
	left := int64(0)
	for v := range n.Nodes() - 1 {
		s := rapid.Int64Range(-6, 6).Draw(t, "supply")
		n.SetSupply(v, s)
		left -= s
	}
	n.SetSupply(n.Nodes()-1, left)
}

// change draws new numbers for some arcs, sometimes new arcs and new supplies.
func change(t *rapid.T, n *Network) {
	for range rapid.IntRange(0, 2).Draw(t, "new arcs") {
		drawArc(t, n)
	}
	for range rapid.IntRange(0, 6).Draw(t, "changes") {
		if n.Arcs() == 0 {
			break
		}
		e := rapid.IntRange(0, n.Arcs()-1).Draw(t, "arc")
		if rapid.Bool().Draw(t, "capacity or cost") {
			n.SetCap(e, rapid.OneOf(rapid.Int64Range(0, 12), rapid.Just(Unlimited)).Draw(t, "cap"))
		} else {
			n.SetCost(e, rapid.Int64Range(-4, 12).Draw(t, "cost"))
		}
	}
	if rapid.Bool().Draw(t, "new supplies") {
		drawSupplies(t, n)
	}
}

func TestSolutionsAreOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		s, err := n.Solve()
		routed, total, routeErr := n.Routable()
		require.NoError(t, routeErr)
		if err == nil {
			require.NoError(t, Verify(n, s))
			require.Equal(t, total, routed)
			return
		}
		if errors.Is(err, ErrInfeasible) {
			require.Less(t, routed, total)
			return
		}
		require.ErrorIs(t, err, ErrUnbounded)
		require.True(t, hasUnboundedCycle(n))
	})
}

// hasUnboundedCycle finds a negative cycle of unlimited arcs by Bellman and
// Ford. Each round goes on from the distances of the last one only, so that none
// falls by more than one cost a round and the largest costs cannot wrap.
func hasUnboundedCycle(n *Network) bool {
	dist := make([]int64, n.Nodes())
	for range n.Nodes() + 1 {
		changed := false
		last := append([]int64(nil), dist...)
		for e := range n.from {
			if d := last[n.from[e]] + n.cost[e]; n.cap[e] == Unlimited && d < dist[n.to[e]] {
				dist[n.to[e]], changed = d, true
			}
		}
		if !changed {
			return false
		}
	}
	return true
}

func TestWarmEqualsCold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNetwork(t)
		var solver Solver
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			if lim, err := n.check(); err == nil && solver.network == n {
				solver.warmStart(n, int64(n.Nodes())*lim.maxCost+1)
				requireStronglyFeasible(t, &solver, n)
			}
			warm, warmErr := solver.Solve(n)
			cold, coldErr := n.Solve()
			if coldErr != nil {
				require.Error(t, warmErr)
				require.Equal(t, errors.Is(coldErr, ErrInfeasible), errors.Is(warmErr, ErrInfeasible))
			} else {
				require.NoError(t, warmErr)
				require.NoError(t, Verify(n, warm))
				require.Equal(t, cold.Cost, warm.Cost)
			}
			requireStronglyFeasible(t, &solver, n)
			change(t, n)
		}
	})
}

// requireStronglyFeasible checks the invariants of the basis a solver keeps.
func requireStronglyFeasible(t require.TestingT, s *Solver, n *Network) {
	sizes, ends := make([]int32, len(s.nodes)), make([]int32, len(s.nodes))
	visited := 0
	for v := s.nodes[s.root()].back; ; v = s.nodes[v].back { // children before parents
		node := s.nodes[v]
		require.Equal(t, v, s.thread[node.back])
		visited++
		sizes[v]++
		require.Equal(t, sizes[v], node.size)
		if sizes[v] == 1 {
			ends[v] = v
		}
		require.Equal(t, ends[v], node.last)
		if v == s.root() {
			break
		}
		if sizes[node.parent] == 0 {
			ends[node.parent] = node.last
		}
		sizes[node.parent] += node.size
		require.Positive(t, node.up)
		require.GreaterOrEqual(t, node.down, int64(0))
		if a := node.arc; a >= 0 {
			require.Zero(t, s.arcs[a].cost+s.potential[s.arcs[a].from]-s.potential[s.arcs[a].to])
		}
	}
	require.Equal(t, n.Nodes()+1, visited)
}
