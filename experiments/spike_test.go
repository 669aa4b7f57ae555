package experiments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/analysis"
	"heartbed/experiments"
)

// Spikes of load: the published ranges of activescale's test report, with as
// many runs of TC1 and TC2 as it has and the two HPAs that it compares. Every
// figure is printed; go test -v shows them.
func TestSpike(t *testing.T) {
	modelled(t)
	repetitions := map[string]int{"tc1": 32, "tc2": 20}
	published := map[string][2]float64{ // coverage, percent: lowest to highest run
		"tc1/cpu": {0, 63.54}, "tc1/activescale": {75.88, 97.86},
		"tc2/cpu": {78.62, 87.95}, "tc2/activescale": {94.33, 98.77},
	}
	var sets []analysis.Set
	for app, n := range repetitions {
		set := run(t, "spike", experiments.Selection{Apps: []string{app}, Repetitions: n, Methods: []string{"cpu", "activescale"}})
		sets = append(sets, set)
		for _, c := range scaledCells(t, set, n) {
			key := c.App + "/" + c.Policy
			require.GreaterOrEqual(t, c.Scaling.CoveragePct.Median, published[key][0], key)
			require.LessOrEqual(t, c.Scaling.CoveragePct.Median, published[key][1], key)
			delete(published, key)
		}
	}
	require.Empty(t, published, "cells that were not run")
	set := analysis.Join(sets...)
	runs := map[string]map[int]experiments.Result{}
	for _, r := range set.Results {
		key := r.Trial.App + "/" + r.Trial.Policy
		if runs[key] == nil {
			runs[key] = map[int]experiments.Result{}
		}
		runs[key][r.Trial.Rep] = r
	}
	for app, n := range repetitions {
		require.Len(t, runs[app+"/activescale"], n)
		for rep, r := range runs[app+"/activescale"] {
			cpu := runs[app+"/cpu"][rep]
			require.Equal(t, cpu.Trial.Seed, r.Trial.Seed)
			require.Greater(t, r.Scaling.CoveragePct, cpu.Scaling.CoveragePct, "%s, repetition %d", app, rep)
		}
	}
	summary, err := analysis.Summarize(set, analysis.Options{})
	require.NoError(t, err)
	for _, c := range summary.Claims {
		if c.Paper == "activescale" {
			t.Logf("%-28s %-15s %s", c.ID, c.Verdict, c.Reason)
			require.NotEmpty(t, c.Verdict)
			require.NotContains(t, c.Reason, "not run", c.ID)
		}
	}
}

// The order of the scalers follows from the age of what they see.
func TestSpikeRivals(t *testing.T) {
	modelled(t)
	set := run(t, "spike", experiments.Selection{Apps: []string{"tc1"}, Repetitions: seeds, Methods: []string{
		"cpu", "activescale", "activescale-1s", "keda-15s", "keda-60s", "keda-cached", "kpa", "kpa-queue",
	}})
	coverage := map[string]float64{}
	for _, c := range scaledCells(t, set, seeds) {
		coverage[c.Policy] = c.Scaling.CoveragePct.Median
	}
	for _, pair := range [][2]string{{"cpu", "keda-60s"}, {"keda-60s", "activescale"}, {"keda-cached", "activescale"}, {"activescale", "kpa"}, {"activescale", "kpa-queue"}} {
		require.Less(t, coverage[pair[0]], coverage[pair[1]], "%s and %s", pair[0], pair[1])
	}
}

// scaledCells prints the cells of a run and checks that each has its runs.
func scaledCells(t *testing.T, set analysis.Set, repetitions int) []analysis.Cell {
	t.Helper()
	cells := set.Cells()
	require.NotEmpty(t, cells)
	for _, c := range cells {
		require.Zero(t, c.Invalid, "%s: %v", c.Key, c.Warnings)
		require.Equal(t, repetitions, c.N)
		s := c.Scaling
		t.Logf("%-34s coverage %5.1f %% (%.1f to %.1f, %d zero), start %5.1f s (%d never), to max %5.1f s (%d never), under %5.0f, over %5.0f replica-seconds, failed %4.1f %%, P99 %6.0f ms",
			c.Key, s.CoveragePct.Median, s.CoveragePct.Min, s.CoveragePct.Max, s.Zero, s.Start.Median, s.Start.Never, s.ToMax.Median, s.ToMax.Never,
			s.UnderReplicaSeconds, s.OverReplicaSeconds, s.Failed, c.P99Ms.Median)
	}
	return cells
}

// modelled skips what is for the simulator, which has models of the scalers. The
// real ones are TestSpikeOnKind's.
func modelled(t *testing.T) {
	t.Helper()
	if !onSimulator() {
		t.Skip("runs with -backend sim")
	}
}
