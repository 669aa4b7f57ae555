package analysis

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// side is a cell with one value for all four metrics (a fixture).
func side(backend, policy string, rps, ms float64) Cell {
	e := &Estimate{Median: ms, N: 6}
	return Cell{Key: Key{"S", "dag", backend, policy, rps}, N: 6, MeanMs: &ms, P50Ms: e, P90Ms: e, P99Ms: e}
}

func TestDeviate(t *testing.T) {
	measured := []Cell{side(BackendWrk2, "a", 10, 100), side(BackendWrk2, "b", 10, 110), side(BackendWrk2, "c", 10, 200), side(BackendWrk2, "a", 20, 100), side(BackendWrk2, "alone", 10, 1)}
	simulated := []Cell{side("sim", "a", 10, 105), side("sim", "b", 10, 90), side("sim", "c", 10, 80), side("sim", "a", 20, 131), side("sim", "other", 10, 1)}
	all := Deviate(measured, simulated, "here")
	require.Len(t, all, 1)
	d := all[0]
	require.Len(t, d.Cells, 4)
	// 5, 18.2, 60 and 31 %.
	require.InDelta(t, (5+100*20./110+60+31)/4, d.MeanAbsError, 1e-9)
	require.Equal(t, []float64{25, 50, 50}, []float64{d.Within10, d.Within20, d.Within30})
	// a and b differ by 10 % only; a-c and b-c count, in four metrics each, and
	// the model has both the wrong way round.
	require.Equal(t, 8, d.OrderPairs)
	require.Equal(t, 0, d.OrderRight)
	require.Len(t, d.OrderWrong, 8)
	require.Contains(t, d.OrderWrong[0], "a against c at 10 RPS, mean: measured 100 and 200, simulated 105 and 80.0")
}

func TestDeviateKeepsBackendsApart(t *testing.T) {
	measured := []Cell{side(BackendWrk2, "a", 10, 100)}
	all := Deviate(measured, []Cell{side("netns", "a", 10, 90), side("sim", "a", 10, 110)}, "here")
	require.Len(t, all, 2)
	require.Equal(t, []string{"netns", "sim"}, []string{all[0].Backend, all[1].Backend})
	require.Empty(t, Deviate(nil, measured, "here"))
}

func TestSideBySide(t *testing.T) {
	cell := func(backend, policy string, rps, ms float64) Cell {
		c := side(backend, policy, rps, ms)
		c.Scenario, c.Source = "ICSOC-A", SourceOf(backend)
		return c
	}
	all, err := SideBySide([]Cell{cell("sim", "pack", 10, 100), cell("sim", "opttraffic", 80, 100), cell(BackendWrk2, "pack", 10, 50)})
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, 50.0, all[0].Cells[0].Values[0].Measured, "the runs at hand")
	require.Equal(t, 97.7, all[1].Cells[0].Values[0].Measured, "the medians that ship with the program")
	require.Equal(t, 42.9, all[2].Cells[0].Values[0].Measured, "the held out ones")
	require.Contains(t, all[2].Measured, "held out")
}

func TestMeasuredMedians(t *testing.T) {
	ref, err := ICSOCA()
	require.NoError(t, err)
	require.Contains(t, ref.Source, "hokunpark98/ICSOC2024")
	require.Len(t, ref.cells(true), 25)
	require.Len(t, ref.cells(false), 4)
	byPolicy := map[string]int{}
	for _, c := range ref.Cells {
		byPolicy[c.Policy]++
		require.Positive(t, c.N)
		require.Less(t, c.P50, c.P90)
		require.Less(t, c.P90, c.P99)
	}
	require.Equal(t, map[string]int{"default": 5, "default+lata": 5, "pack": 5, "opttraffic": 7, "larp+lata": 7}, byPolicy)
}

// Emulated runs stand beside simulated ones of the same scale only, and keep
// cells of their own.
func TestEmulatedBesideSimulated(t *testing.T) {
	one := func(backend string, scale, p99 float64) experiments.Result {
		return experiments.Result{
			Trial:     experiments.Trial{Scenario: "A", App: "pair", Backend: backend, Policy: "heart", RPS: 50, Rep: 1, Scale: scale},
			Verdict:   experiments.Valid,
			LatencyMs: &experiments.Latency{Mean: p99 / 2, P50: p99 / 2, P90: p99 / 1.5, P99: p99},
		}
	}
	set := Set{Results: []experiments.Result{one("sim", 0, 100), one("sim", 4, 300), one("netns", 4, 400), one("kind", 4, 600), one("kind", 0, 50)}}
	cells := set.Cells()
	require.Len(t, cells, 5)
	found, err := SideBySide(cells)
	require.NoError(t, err)
	var pairs []string
	for _, d := range found {
		require.Equal(t, Emulated, d.Nearer)
		pairs = append(pairs, fmt.Sprintf("%s, %s %.0f %%", d.Measured, d.Backend, d.Cells[0].Values[3].Pct))
	}
	require.Equal(t, []string{
		"the runs on kind in this report, sim 100 %",
		"the runs on netns in this report, sim÷4 -25 %",
		"the runs on kind in this report, sim÷4 -50 %",
		"the runs on kind in this report, netns÷4 -33 %",
	}, pairs)
}
