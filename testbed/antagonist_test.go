package testbed_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed"
	"heartbed/workloads"
)

// lengths draws a pause, a burst, a pause and so on.
func lengths(b *testbed.Bursts, n int) (pauses, bursts []time.Duration) {
	for range n {
		pauses = append(pauses, b.Length())
		b.Active = true
		bursts = append(bursts, b.Length())
		b.Active = false
	}
	return pauses, bursts
}

func within(t *testing.T, all []time.Duration, from, to, mean time.Duration) {
	t.Helper()
	sum := time.Duration(0)
	for _, d := range all {
		require.GreaterOrEqual(t, d, from)
		require.Less(t, d, to)
		sum += d
	}
	require.InEpsilon(t, mean, sum/time.Duration(len(all)), 0.02)
}

func TestBurstsFollowTheSeed(t *testing.T) {
	s := func(n int) workloads.Duration { return workloads.Duration(n) * workloads.Duration(time.Second) }
	p := testbed.Plan{Seed: 1, Antagonists: []testbed.Antagonist{
		{Nodes: []string{"n1", "n2"}, StealCores: 1, BurstMin: s(1), BurstMax: s(3), PauseMin: s(10), PauseMax: s(30)},
		{Nodes: []string{"n1"}, Inflate: 2, BurstMin: s(5), BurstMax: s(5), PauseMin: s(5), PauseMax: s(5)},
	}}
	all, again := p.Bursts(), p.Bursts()
	require.Len(t, all, 3)
	require.Equal(t, []string{"n1", "n2", "n1"}, []string{all[0].Node, all[1].Node, all[2].Node})
	require.Equal(t, []float64{1, 1, 2}, []float64{all[0].Inflate, all[1].Inflate, all[2].Inflate})

	pauses, bursts := lengths(&all[0], 4000)
	within(t, pauses, 10*time.Second, 30*time.Second, 20*time.Second)
	within(t, bursts, time.Second, 3*time.Second, 2*time.Second)
	samePauses, sameBursts := lengths(&again[0], 4000)
	require.Equal(t, pauses, samePauses)
	require.Equal(t, bursts, sameBursts)
	otherPauses, _ := lengths(&all[1], 4000)
	require.NotEqual(t, pauses, otherPauses, "each node has bursts of its own")

	fixed, _ := lengths(&all[2], 3)
	require.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}, fixed)
}

func TestValidateNamesWhatNoBackendCanPlay(t *testing.T) {
	err := testbed.Plan{Antagonists: []testbed.Antagonist{{Nodes: []string{"n9"}, BurstMin: 2, BurstMax: 1, PauseMin: 1, PauseMax: 1}}}.Validate()
	require.ErrorContains(t, err, `antagonist 1: found node "n9", expected one of the plan`)
	require.ErrorContains(t, err, "antagonist 1: found bursts of 2ns to 1ns")
}
