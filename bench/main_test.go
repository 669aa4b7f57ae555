package main

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart/flow"
)

func TestRunRefusesBadArguments(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"-only", "lemon,cplex"}, `no section "cplex", there are: `},
		{[]string{"-reps", "0"}, "-reps of at least 1"},
		{[]string{"lemon"}, "want flags only"},
		{[]string{"-seed", "-3"}, "invalid value"},
	}
	for _, tc := range tests {
		var out bytes.Buffer
		err := run(t.Context(), tc.args, &out)
		require.ErrorIs(t, err, errUsage)
		require.ErrorContains(t, err, tc.want)
		require.Empty(t, out.String())
	}
}

func TestTransport(t *testing.T) {
	p := newTransport(40, 1)
	require.Equal(t, p, newTransport(40, 1))
	require.NotEqual(t, p, newTransport(40, 2))
	drifted := p.drift(rand.New(rand.NewPCG(1, 0)))
	for _, q := range []transport{p, drifted} {
		require.Equal(t, int64(totalUnits), sum(q.supply))
		require.Equal(t, int64(totalUnits), sum(q.demand))
	}
	for e, c := range p.cost {
		require.GreaterOrEqual(t, c, int64(minCost))
		require.LessOrEqual(t, c, int64(maxCost))
		require.InDelta(t, c, drifted.cost[e], 0.01*float64(c))
	}

	// Setting the numbers of a problem gives the network built for it.
	n := p.network()
	drifted.apply(n)
	require.Equal(t, drifted.network(), n)
	s, err := n.Solve()
	require.NoError(t, err)
	require.NoError(t, flow.Verify(n, s))
}

func sum(units []int64) (total int64) {
	for _, u := range units {
		total += u
	}
	return total
}

func TestWriteDIMACS(t *testing.T) {
	var b strings.Builder
	p := transport{supply: []int64{3, 4}, demand: []int64{7}, cost: []int64{50, 60}}
	require.NoError(t, p.writeDIMACS(&b))
	require.Equal(t, "p min 3 2\nn 1 3\nn 2 4\nn 3 -7\na 1 3 0 -1 50\na 2 3 0 -1 60\n", b.String())
}

// Both solvers find the same optimum, and a difference would be an error.
func TestCompareWithLEMON(t *testing.T) {
	dir := t.TempDir()
	program, err := compileLemon(t.Context(), dir)
	if err != nil {
		t.Skip(err)
	}
	times, err := compareSize(t.Context(), 10, program, dir, options{seed: 1, reps: 3})
	require.NoError(t, err)
	for _, d := range []time.Duration{times.goBuild, times.cold, times.warm, times.build, times.int64s, times.int32} {
		require.Positive(t, d)
	}
}

// What goes wrong on the C++ side is told.
func TestLEMONRefusals(t *testing.T) {
	dir := t.TempDir()
	program, err := compileLemon(t.Context(), dir)
	if err != nil {
		t.Skip(err)
	}
	tests := []struct {
		name string
		p    transport
		want string
	}{
		{"another objective", transport{supply: []int64{3}, demand: []int64{3}, cost: []int64{60}}, "the objectives differ: LEMON (int64) 180, heart/flow 150"},
		{"no optimum", transport{supply: []int64{3}, demand: []int64{2}, cost: []int64{50}}, "LEMON finds no optimum"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(dir, "problem.min")
			peer, err := startLemon(t.Context(), program, path, tc.p)
			require.NoError(t, err)
			defer peer.stop()
			good := transport{supply: []int64{3}, demand: []int64{3}, cost: []int64{50}}
			r := lemonRuns{peer: peer}
			require.ErrorContains(t, r.repeat(good, good.network()), tc.want)
		})
	}
}

// Without the C++ side the other half is measured all the same.
func TestCompareWithoutLEMON(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := compileLemon(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "apt-get install liblemon-dev g++")
	times, err := compareSize(t.Context(), 10, "", t.TempDir(), options{seed: 1, reps: 3})
	require.NoError(t, err)
	require.Positive(t, times.cold)
	require.Zero(t, times.int64s)
}
