package experiments_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/analysis"
	"heartbed/experiments"
)

// These tests run what the papers report, in the simulator, and assert what
// the calibration can carry: orders and ratios of medians over six seeds.
// Every figure is printed; go test -v shows them.

const (
	seeds = 6
	// shortRepetitions are too few for an interval: an order of medians is all
	// that is asserted of them.
	shortRepetitions = 3
)

// cells are the results of one scenario by "app/method/rps".
type cells map[string]analysis.Cell

// run runs a selection of a scenario on the backend of -backend.
func run(t *testing.T, scenario string, sel experiments.Selection) analysis.Set {
	t.Helper()
	if testing.Short() {
		t.Skip("minutes of simulated load; run without -short")
	}
	s, err := experiments.Load(scenario)
	require.NoError(t, err)
	place, workers := backend(t), 1
	if onSimulator() {
		workers = 2
	}
	e, err := s.Experiment(sel, *backendFlag)
	require.NoError(t, err)
	dir := t.TempDir()
	outcome, err := e.Run(t.Context(), place, experiments.Options{Dir: dir, Workers: workers})
	require.NoError(t, err)
	require.NoError(t, outcome.Failure())
	set, err := analysis.Read(dir)
	require.NoError(t, err)
	return set
}

// measure runs a selection over six seeds, or where time is real in the
// scenario's short form, and prints its cells.
func measure(t *testing.T, scenario string, sel experiments.Selection) cells {
	t.Helper()
	sel.Repetitions = seeds
	if !onSimulator() {
		sel.Short, sel.Repetitions = true, shortRepetitions
	}
	set := run(t, scenario, sel)
	found := cells{}
	for _, c := range set.Cells() {
		require.Zero(t, c.Invalid, "%s: %v", c.Key, c.Warnings)
		require.Equal(t, sel.Repetitions, c.N)
		found[fmt.Sprintf("%s/%s/%g", c.App, c.Policy, c.RPS)] = c
		t.Logf("%-32s P99 %8.0f ms, mean %7.1f ms, CPU gap %5.1f points (windows %5.1f), n %d, saturated %d",
			c.Key, c.P99Ms.Median, *c.MeanMs, *c.CPUGapPp, *c.CPUGapWindowPp, c.N, c.Saturated)
	}
	return found
}

// p99 is the median of the runs' P99, ms.
func (c cells) p99(t *testing.T, key string) float64 {
	t.Helper()
	require.Contains(t, c, key)
	return c[key].P99Ms.Median
}

// ratio asserts that P99 of key over P99 of base lies between lo and hi.
func (c cells) ratio(t *testing.T, key, base string, lo, hi float64) {
	t.Helper()
	r := c.p99(t, key) / c.p99(t, base)
	t.Logf("P99 %s / %s = %.2f, expected %g to %g", key, base, r, lo, hi)
	require.GreaterOrEqual(t, r, lo)
	require.LessOrEqual(t, r, hi)
}

// HEART, pairwise experiments.
func TestPairwise(t *testing.T) {
	lan := measure(t, "LAN", experiments.Selection{
		Apps: []string{"pair"}, RPS: []float64{50, 100, 150},
		Methods: []string{"kubeproxy", "least-request", "opttraffic", "heart"},
	})
	require.Less(t, lan.p99(t, "pair/heart/100"), lan.p99(t, "pair/least-request/100"))
	require.Less(t, lan.p99(t, "pair/least-request/100"), lan.p99(t, "pair/opttraffic/100"))
	lan.ratio(t, "pair/least-request/100", "pair/heart/100", 1.2, 2.3)
	lan.ratio(t, "pair/kubeproxy/100", "pair/heart/100", 8, 1000)
	lan.ratio(t, "pair/heart/150", "pair/heart/50", 0, 1.5)

	b := measure(t, "B", experiments.Selection{
		Apps: []string{"pair"}, RPS: []float64{50},
		Methods: []string{"kubeproxy", "least-request", "localization", "opttraffic", "lata", "heart"},
	})
	for key := range b {
		require.GreaterOrEqual(t, b.p99(t, key), b.p99(t, "pair/heart/50"), "HEART is lowest")
	}
	b.ratio(t, "pair/opttraffic/50", "pair/heart/50", 1.2, 2)
	b.ratio(t, "pair/lata/50", "pair/heart/50", 1.2, 2)
}

// HEART, DAG experiments.
func TestDAG(t *testing.T) {
	c := measure(t, "LAN", experiments.Selection{
		Apps: []string{"dag"}, Methods: []string{"kubeproxy", "least-request", "opttraffic", "lata", "heart"},
	})
	c.ratio(t, "dag/lata/400", "dag/heart/400", 8, 40)
	c.ratio(t, "dag/opttraffic/400", "dag/heart/400", 8, 40)
	c.ratio(t, "dag/kubeproxy/400", "dag/lata/400", 5, 1000)
	c.ratio(t, "dag/least-request/400", "dag/heart/400", 2, 12)
	c.ratio(t, "dag/heart/400", "dag/heart/200", 0, 1.5)
	require.LessOrEqual(t, *c["dag/heart/400"].CPUGapWindowPp, 6.0)
	require.GreaterOrEqual(t, *c["dag/opttraffic/400"].CPUGapWindowPp, 50.0)
	require.GreaterOrEqual(t, *c["dag/lata/400"].CPUGapWindowPp, 50.0)
}

// HEART, scheduling time: what is compared is the growth with the replicas.
// The times are those of this machine; a test asserts no time.
func TestSchedulingTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the time of hundreds of steps; run without -short")
	}
	r, err := experiments.Scale(t.Context(), experiments.ScaleOptions{Policies: []string{"heart", "lata"}}, time.Now)
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, r.WriteText(&text))
	t.Log("published: LATA 8.8 to 98.1 ms (exponent 1.74), HEART 6 to 9.4 ms (0.32)\n" + text.String())
	heart, lata := *r.Growth[0].Exponent, *r.Growth[1].Exponent
	require.Less(t, heart, 1.0, "HEART routes groups: less than linear in the replicas")
	require.Greater(t, lata, heart+0.5, "LATA routes replicas: links grow with their square")
}

// HEART without its parts. "Without trend" means equal shares; with only the
// last window there is no difference in the simulator, which is printed and
// not asserted. With -backend kind or netns equal shares are compared on real
// processes, in the short form.
func TestAblation(t *testing.T) {
	if !onSimulator() {
		c := measure(t, "ablation-A", experiments.Selection{})
		c.ratio(t, "pair/heart-equal/85", "pair/heart/85", 1, 1000)
		return
	}
	for _, scenario := range []string{"ablation-A", "ablation-B"} {
		t.Run("trend "+scenario, func(t *testing.T) {
			c := measure(t, scenario, experiments.Selection{RPS: []float64{85}})
			c.ratio(t, "pair/heart-equal/85", "pair/heart/85", 1.5, 10)
		})
	}
	t.Run("trend with an antagonist", func(t *testing.T) {
		c := measure(t, "ablation-antagonist", experiments.Selection{})
		require.LessOrEqual(t, *c["pair/heart/100"].CPUGapWindowPp, 25.0)
		require.GreaterOrEqual(t, *c["pair/heart-equal/100"].CPUGapWindowPp, 60.0)
	})
	t.Run("equal nodes", func(t *testing.T) {
		c := measure(t, "ablation-equal-nodes", experiments.Selection{})
		c.ratio(t, "pair/heart/100", "pair/heart-equal/100", 0.9, 1.1)
		c.ratio(t, "dag/heart/400", "dag/heart-equal/400", 0.9, 1.1)
	})
	// The published gain of the filter, an average of 7.5 %, depends on the
	// placement: the table shows gains and losses, the direction is asserted
	// where its slow links carry traffic that has another way.
	t.Run("filter by placement", func(t *testing.T) {
		c := measure(t, "ablation-filter", experiments.Selection{})
		sum, n := 0.0, 0.0
		for key := range c {
			if on, found := strings.CutPrefix(key, "pair/on-"); found {
				change := 100 * (c.p99(t, key)/c.p99(t, "pair/off-"+on) - 1)
				t.Logf("placement %s: the filter changes P99 by %+.1f %%", on, change)
				sum, n = sum+change, n+1
			}
		}
		t.Logf("mean of %g placements %+.1f %%, published -7.5 %%", n, sum/n)
		c.ratio(t, "pair/on-p2/85", "pair/off-p2/85", 0, 0.98)
	})
}

// LATA, motivation: two components on three nodes.
func TestMotivation(t *testing.T) {
	const app = "pair-icsoc/"
	a := measure(t, "motivation-A", experiments.Selection{})
	t.Run("doubled delay", func(t *testing.T) {
		b := measure(t, "motivation-B", experiments.Selection{Methods: []string{"least-request"}})
		for _, rps := range []string{"50", "100", "200"} {
			before, after := a[app+"least-request/"+rps], b[app+"least-request/"+rps]
			t.Logf("%s RPS: mean %+.0f %% (published +33 to +44 %%), P99 %+.0f %% (published +57 to +97 %%)", rps,
				100*(*after.MeanMs / *before.MeanMs - 1), 100*(after.P99Ms.Median/before.P99Ms.Median-1))
			require.Greater(t, *after.MeanMs, *before.MeanMs)
			require.Greater(t, after.P99Ms.Median, before.P99Ms.Median)
		}
	})
	t.Run("OptTraffic lowers the mean more than the tail", func(t *testing.T) {
		opt, base := a[app+"opttraffic/100"], a[app+"least-request/100"]
		mean, p99 := 1 - *opt.MeanMs / *base.MeanMs, 1-opt.P99Ms.Median/base.P99Ms.Median
		t.Logf("mean %.0f %% lower (published 35 %%), P99 %.0f %% lower (published 6 %%)", 100*mean, 100*p99)
		require.Greater(t, mean, 0.1)
		require.Less(t, p99, mean)
	})
	t.Run("localization is best until its replicas are busy", func(t *testing.T) {
		require.Less(t, a.p99(t, app+"localization/100"), a.p99(t, app+"least-request/100"))
		require.Greater(t, a.p99(t, app+"localization/300"), 2*a.p99(t, app+"localization/100"))
	})
}

// The DAG of the LATA/LARP experiments against the authors' own logs of
// scenario A, on which the one calibration for all methods was fitted. Not
// every pair of methods comes out in the right order: the means of OptTraffic
// and of LATA are a tie in the model (docs/method.md), so a few pairs that the
// logs part by chance of six to ten runs are printed and not asserted.
func TestICSOC(t *testing.T) {
	summary, err := analysis.Summarize(run(t, "ICSOC-A", experiments.Selection{Apps: []string{"dag"}}), analysis.Options{})
	require.NoError(t, err)
	require.NotEmpty(t, summary.Deviations)
	d := summary.Deviations[0]
	for _, c := range d.Cells {
		line := fmt.Sprintf("%-13s %2g RPS", c.Policy, c.RPS)
		for _, v := range c.Values {
			line += fmt.Sprintf("  %s %5.1f measured, %5.1f simulated (%+3.0f %%)", v.Metric, v.Measured, v.Simulated, v.Pct)
		}
		t.Log(line)
	}
	t.Logf("mean absolute error %.1f %%; within 10 %%: %.0f %%, 20 %%: %.0f %%, 30 %%: %.0f %%; order right in %d of %d pairs that differ by more than 15 %%",
		d.MeanAbsError, d.Within10, d.Within20, d.Within30, d.OrderRight, d.OrderPairs)
	require.Len(t, d.Cells, 25)
	require.LessOrEqual(t, d.MeanAbsError, 10.0)
	require.GreaterOrEqual(t, d.Within20, 90.0)
	for _, pair := range d.OrderWrong {
		t.Log("wrong order: ", pair)
	}
	require.Equal(t, 168, d.OrderPairs)
	require.GreaterOrEqual(t, d.OrderRight, 160)
}
