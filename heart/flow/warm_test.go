package flow

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Solving the same problem again starts at its optimum: no arc can enter.
func TestWarmStartOfTheSameProblemIsOptimal(t *testing.T) {
	n := denseTransport(30, rand.New(rand.NewPCG(1, 1)))
	for e := range n.Arcs() { // make capacities bind, too
		n.SetCap(e, 12_000)
	}
	var s Solver
	first, err := s.Solve(n)
	require.NoError(t, err)

	s.warmStart(n, 30*2*20_050)
	e, _ := s.entering(0)
	require.Equal(t, -1, e)

	again, err := s.Solve(n)
	require.NoError(t, err)
	require.Equal(t, first, again)
}

// Solving over the arcs known so far, adding those that the potentials say would
// pay, and going on ends at the optimum over all arcs.
func TestColumnGeneration(t *testing.T) {
	const size = 25
	all := denseTransport(size, rand.New(rand.NewPCG(9, 9)))
	want, err := all.Solve()
	require.NoError(t, err)

	part := New(2*size, 0)
	for _, b := range all.supply {
		part.AddNode(b)
	}
	add := func(e int) { part.AddArc(int(all.from[e]), int(all.to[e]), all.cap[e], all.cost[e]) }
	for i := range size { // a way from each node to each, at a price, keeps it feasible
		add(i*size + i)
		add(i*size + (i+1)%size)
		part.AddArc(size+i, i, Unlimited, 1_000_000)
	}
	var s Solver
	for added := 1; added > 0; {
		got, err := s.Solve(part)
		require.NoError(t, err)
		require.NoError(t, Verify(part, got))
		require.GreaterOrEqual(t, got.Cost, want.Cost)
		added = 0
		for e := range all.from {
			if all.cost[e]+got.Potential[all.from[e]]-got.Potential[all.to[e]] < 0 {
				add(e)
				added++
			}
		}
		if added == 0 {
			require.Equal(t, want.Cost, got.Cost)
		}
	}
	require.Less(t, part.Arcs(), all.Arcs())
}

// A long series of changes of every kind, each answer checked by itself and
// against a cold start.
func TestWarmSeries(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	const size = 20
	n := denseTransport(size, rng)
	var s Solver
	feasible := 0
	for range 200 {
		warm, warmErr := s.Solve(n)
		cold, coldErr := n.Solve()
		if coldErr == nil {
			feasible++
			require.NoError(t, warmErr)
			require.NoError(t, Verify(n, warm))
			require.Equal(t, cold.Cost, warm.Cost)
		} else {
			require.EqualError(t, warmErr, coldErr.Error())
		}
		requireStronglyFeasible(t, &s, n)
		jitter(n, rng)
		from, to, units := rng.IntN(2*size), rng.IntN(2*size), rng.Int64N(5000)
		n.SetSupply(from, n.supply[from]+units) // may turn a sink into a source
		n.SetSupply(to, n.supply[to]-units)
		n.SetCap(rng.IntN(size*size), []int64{0, 100, 20_000, Unlimited}[rng.IntN(4)])
	}
	require.Greater(t, feasible, 20)
}

// A network may grow between solves, and another one may follow.
func TestSolverNoticesAnotherNetwork(t *testing.T) {
	n := build([]int64{2, -2}, arcSpec{0, 1, Unlimited, 5})
	var s Solver
	got, err := s.Solve(n)
	require.NoError(t, err)
	require.Equal(t, int64(10), got.Cost)

	n.AddArc(0, 1, 1, 3)
	got, err = s.Solve(n)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1}, got.Flow)

	mid := n.AddNode(0)
	n.AddArc(0, mid, Unlimited, 1)
	n.AddArc(mid, 1, Unlimited, 1)
	got, err = s.Solve(n)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0, 2, 2}, got.Flow)

	other := build([]int64{-3, 3, 0}, arcSpec{1, 0, 9, 1}, arcSpec{1, 2, 9, 1}, arcSpec{0, 2, 9, 1}, arcSpec{2, 0, 9, 1})
	got, err = s.Solve(other)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 0, 0, 0}, got.Flow)
}

// After any refusal the solver still answers the mended problem.
func TestSolverRecoversFromRefusals(t *testing.T) {
	n := build([]int64{2, -2, 0}, arcSpec{0, 1, Unlimited, 5}, arcSpec{1, 2, Unlimited, 1}, arcSpec{2, 1, Unlimited, 1})
	var s Solver
	steps := []struct {
		change func()
		err    error
		cost   int64
	}{
		{func() {}, nil, 10},
		{func() { n.SetCap(0, 1) }, ErrInfeasible, 0},
		{func() { n.SetCap(0, 2) }, nil, 10},
		{func() { n.SetCost(1, -4) }, ErrUnbounded, 0},
		{func() { n.SetCap(1, 3) }, nil, 1},
		{func() { n.SetSupply(1, -3) }, ErrInvalid, 0},
		{func() { n.SetSupply(1, 2); n.SetSupply(0, -2) }, ErrInfeasible, 0},
		{func() { n.SetSupply(1, -2); n.SetSupply(0, 2); n.SetCost(0, -7) }, nil, -23},
	}
	for i, step := range steps {
		step.change()
		got, err := s.Solve(n)
		require.ErrorIs(t, err, step.err, "step %d", i)
		if err == nil {
			require.NoError(t, Verify(n, got), "step %d", i)
			require.Equal(t, step.cost, got.Cost, "step %d", i)
		}
	}
}

// The same problem gives the same answer, also where the optimum is not unique.
func TestSolveIsDeterministic(t *testing.T) {
	n := denseTransport(25, rand.New(rand.NewPCG(3, 3)))
	for e := range n.cost {
		n.SetCost(e, n.cost[e]%3)
	}
	first, err := n.Solve()
	require.NoError(t, err)
	for range 5 {
		again, err := n.Solve()
		require.NoError(t, err)
		require.Equal(t, first, again)
	}
}

// Assignment problems are degenerate at every pivot; with few distinct costs a
// rule that is not strongly feasible can cycle on them.
func TestDegenerateAssignment(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const size = 40
	for range 20 {
		n := New(2*size, size*size)
		for v := range 2 * size {
			n.AddNode(int64(1 - v/size*2))
		}
		for e := range size * size {
			n.AddArc(e/size, size+e%size, 1, rng.Int64N(3))
		}
		s, err := n.Solve()
		require.NoError(t, err)
		require.NoError(t, Verify(n, s))
	}
}
