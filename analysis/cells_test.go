package analysis

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"heartbed/experiments"
)

// run is a fixture with one latency value for all percentiles.
func run(policy string, rep int, p99 float64) experiments.Result {
	return experiments.Result{
		Trial:     experiments.Trial{ID: policy + string(rune('a'+rep)), Scenario: "LAN", App: "pair", Backend: "sim", Policy: policy, RPS: 100, Rep: rep, Seed: uint64(rep)},
		Verdict:   experiments.Valid,
		LatencyMs: &experiments.Latency{Mean: p99, P50: p99, P90: p99, P99: p99, P999: p99, Max: p99},
		Requests:  experiments.Requests{Offered: 1000},
	}
}

func TestEstimateHasNoIntervalUnderSixRuns(t *testing.T) {
	require.Nil(t, estimate(nil))
	// Order statistics of n values 1..n: with 10 the 2nd to the 9th at 97.9 %;
	// three runs carry no interval of 95 % (MikkoParkkola/mcp-gateway#615).
	cases := []struct {
		n              int
		median, lo, hi float64 // lo 0 = no interval
		confidence     float64
	}{{1, 1, 0, 0, 0}, {5, 3, 0, 0, 0}, {6, 3.5, 1, 6, 0.969}, {7, 4, 1, 7, 0.984}, {10, 5.5, 2, 9, 0.979}}
	for _, c := range cases {
		values := make([]float64, c.n)
		for i := range values {
			values[c.n-1-i] = float64(i + 1)
		}
		e := estimate(values)
		require.Equal(t, c.median, e.Median, "n = %d", c.n)
		require.Equal(t, float64(c.n), values[0], "the caller's values must stay as they are")
		if c.lo == 0 {
			require.Nil(t, e.Lo)
			require.Nil(t, e.Hi)
			continue
		}
		require.Equal(t, c.lo, *e.Lo, "n = %d", c.n)
		require.Equal(t, c.hi, *e.Hi, "n = %d", c.n)
		require.InDelta(t, c.confidence, e.Confidence, 0.001)
	}
}

func TestEstimateHoldsItsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := estimate(rapid.SliceOfN(rapid.Float64Range(0.001, 1e7), 1, 40).Draw(t, "values"))
		require.LessOrEqual(t, e.Min, e.Median)
		require.LessOrEqual(t, e.Median, e.Max)
		if e.Lo != nil {
			require.GreaterOrEqual(t, e.N, minRuns)
			require.LessOrEqual(t, e.Min, *e.Lo)
			require.LessOrEqual(t, *e.Lo, e.Median)
			require.LessOrEqual(t, e.Median, *e.Hi)
			require.LessOrEqual(t, *e.Hi, e.Max)
			require.GreaterOrEqual(t, e.Confidence, confidence)
		}
	})
}

func TestCellsCountWhatTheyLeaveOut(t *testing.T) {
	invalid, saturated, failed := run("heart", 2, 999), run("heart", 3, 30), run("heart", 4, 0)
	invalid.Verdict = experiments.Invalid
	saturated.Verdict = experiments.Saturated
	failed.Verdict, failed.LatencyMs, failed.Error = experiments.Invalid, nil, "no route"
	cells := Set{Results: []experiments.Result{run("heart", 1, 10), invalid, saturated, failed}}.Cells()
	require.Len(t, cells, 1)
	c := cells[0]
	require.Equal(t, 2, c.N)
	require.Equal(t, 1, c.Saturated)
	require.Equal(t, 2, c.Invalid)
	require.Equal(t, 20.0, c.P99Ms.Median)
	require.Equal(t, Simulated, c.Source)
}

func TestCellsOfDifferentSourcesStayApart(t *testing.T) {
	emulated, measured := run("heart", 1, 20), run("heart", 1, 30)
	emulated.Trial.Backend, emulated.Trial.ID = "netns", "e"
	measured.Trial.Backend, measured.Trial.ID = BackendWrk2, "m"
	cells := Set{Results: []experiments.Result{run("heart", 1, 10), emulated, measured}}.Cells()
	require.Len(t, cells, 3)
	sources := map[Source]float64{}
	for _, c := range cells {
		sources[c.Source] = c.P99Ms.Median
	}
	require.Equal(t, map[Source]float64{Simulated: 10, Emulated: 20, Measured: 30}, sources)
}

func TestCellWarnsWhenRunsAreNotAlike(t *testing.T) {
	cases := []struct {
		name   string
		change func(a, b *experiments.Result)
		want   string
	}{
		{"alike", func(a, b *experiments.Result) {}, ""},
		{"repetition twice", func(a, b *experiments.Result) { b.Trial.Rep = 1 }, "repetition 1 is there twice"},
		{"seed shared", func(a, b *experiments.Result) { b.Trial.Seed = 1 }, "share seed 1"},
		{"other duration", func(a, b *experiments.Result) { b.Requests.Offered = 2000 }, "durations differ"},
		{"other replicas", func(a, b *experiments.Result) {
			a.CPU = map[string]experiments.CPUUsage{"a1": {}}
			b.CPU = map[string]experiments.CPUUsage{"a1": {}, "a2": {}}
		}, "other replicas"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := run("heart", 1, 10), run("heart", 2, 10)
			c.change(&a, &b)
			warnings := Set{Results: []experiments.Result{a, b}}.Cells()[0].Warnings
			if c.want == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], c.want)
		})
	}
}

func TestPairedComparesRunsOfOneRepetition(t *testing.T) {
	cases := []struct {
		name            string
		reps            int
		factor          func(rep int) float64
		ratio           float64
		distinguishable bool
	}{
		// The noise between repetitions is a factor of 6; within one it is nothing.
		{"always lower", 6, func(int) float64 { return 0.9 }, 0.9, true},
		{"equal", 6, func(int) float64 { return 1 }, 1, false},
		{"either way", 6, func(rep int) float64 { return 0.9 + 0.2*float64(rep%2) }, 1, false},
		{"too few runs to tell", 5, func(int) float64 { return 0.5 }, 0.5, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var results []experiments.Result
			for rep := 1; rep <= c.reps; rep++ {
				base := 100 * float64(rep)
				results = append(results, run("kubeproxy", rep, base), run("heart", rep, base*c.factor(rep)))
			}
			results = append(results, run("kubeproxy", 20, 1)) // no partner
			pairs := Paired(Set{Results: results}.Cells(), func(string) string { return "kubeproxy" })
			require.Len(t, pairs, 1)
			require.Equal(t, "heart", pairs[0].Policy)
			require.Equal(t, c.reps, pairs[0].P99Ratio.N)
			require.InDelta(t, c.ratio, pairs[0].P99Ratio.Median, 1e-9)
			require.Equal(t, c.distinguishable, pairs[0].Distinguishable)
		})
	}
}

func TestCompareMatchesCellsOfTwoSets(t *testing.T) {
	var a, b []experiments.Result
	for rep := 1; rep <= 6; rep++ {
		noise := float64(rep)
		a = append(a, run("heart", rep, 100+noise), run("lata", rep, 100+noise), run("pack", rep, 1))
		slow, same, own := run("heart", rep, 200+noise), run("lata", rep, 101+noise), run("mine", rep, 5)
		for _, r := range []*experiments.Result{&slow, &same, &own} {
			r.Trial.Backend = "netns"
		}
		b = append(b, slow, same, own)
	}
	c := compareCells("A", "B", Set{Results: a}.Cells(), Set{Results: b}.Cells())
	require.Len(t, c.Cells, 2)
	require.Equal(t, "lata", c.Cells[0].Policy)
	require.False(t, c.Cells[0].Distinguishable)
	require.Equal(t, "heart", c.Cells[1].Policy)
	require.True(t, c.Cells[1].Distinguishable)
	require.InDelta(t, 203.5/103.5, *c.Cells[1].Ratio, 1e-9)
	require.Equal(t, "pack", c.OnlyA[0].Policy)
	require.Equal(t, "mine", c.OnlyB[0].Policy)
	text := c.Text()
	require.Contains(t, text, "×1.97")
	require.Contains(t, text, "×1.01 ~")
	require.Contains(t, text, "simulated")
	require.Contains(t, text, "emulated")
	require.Contains(t, text, "only in B: LAN/pair/mine at 100 RPS (netns)")
}

// A side without a valid run is no comparison, and no difference either way
// (spinnaker/kayenta#377, spinnaker/kayenta#799); one of 7.5 times is seen
// (spinnaker/kayenta#633).
func TestCompareWithoutValidRuns(t *testing.T) {
	side := func(p99 float64, verdict experiments.Verdict) []Cell {
		var runs []experiments.Result
		for rep := 1; rep <= 6; rep++ {
			r := run("heart", rep, p99+float64(rep))
			r.Verdict = verdict
			runs = append(runs, r)
		}
		return Set{Results: runs}.Cells()
	}
	whole, broken := side(100, experiments.Valid), side(100, experiments.Invalid)
	for _, sides := range [][2][]Cell{{whole, broken}, {broken, whole}, {broken, broken}} {
		c := compareCells("A", "B", sides[0], sides[1])
		require.Len(t, c.Cells, 1)
		require.Nil(t, c.Cells[0].Ratio)
		require.False(t, c.Cells[0].Distinguishable)
		require.NotContains(t, c.Text(), "×")
	}
	none := compareCells("A", "B", whole, nil)
	require.Empty(t, none.Cells)
	require.Len(t, none.OnlyA, 1)

	far := compareCells("A", "B", whole, side(750, experiments.Valid)).Cells[0]
	require.True(t, far.Distinguishable)
	require.InDelta(t, 753.5/103.5, *far.Ratio, 1e-9)
}
