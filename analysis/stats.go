package analysis

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"heartbed/experiments"
)

// confidence that intervals aim at. What is reached is in the Estimate: order
// statistics come in steps, with 10 runs the 2nd to the 9th value at 97.9 %.
const confidence = 0.95

// minRuns is the smallest number of runs whose order statistics bound the
// median with 95 %: with 5 even the range from lowest to highest does not.
const minRuns = 6

// Estimate is the median over runs with an interval that assumes nothing
// about their distribution (order statistics).
type Estimate struct {
	Median     float64  `json:"median"`
	Lo         *float64 `json:"lo"` // nil = too few runs for an interval
	Hi         *float64 `json:"hi"`
	Confidence float64  `json:"confidence,omitempty"` // that the interval reaches; 0 = no interval
	Min        float64  `json:"min"`
	Max        float64  `json:"max"`
	N          int      `json:"n"`
}

// estimate returns nil for no values.
func estimate(values []float64) *Estimate {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Clone(values) // NewSample would sort the caller's
	sample := benchmath.NewSample(sorted, &benchmath.DefaultThresholds)
	summary := benchmath.AssumeNothing.Summary(sample, confidence)
	e := &Estimate{Median: summary.Center, Min: sorted[0], Max: sorted[len(sorted)-1], N: len(sorted)}
	if len(values) >= minRuns && !math.IsInf(summary.Lo, 0) && !math.IsInf(summary.Hi, 0) {
		e.Lo, e.Hi, e.Confidence = &summary.Lo, &summary.Hi, summary.Confidence
	}
	return e
}

// spread is the noise of the runs: half of their range over the median, in
// percent; 0 for one run.
func (e Estimate) spread() float64 {
	if e.Median == 0 {
		return 0
	}
	return 100 * (e.Max - e.Min) / 2 / math.Abs(e.Median)
}

// Pair compares a cell with the baseline of the same scenario, app, backend
// and rate, run by run: runs of one repetition had the same arrivals.
type Pair struct {
	Key
	Source   Source    `json:"source"`
	Baseline string    `json:"baseline"`
	P99Ratio *Estimate `json:"p99Ratio"` // cell over baseline; nil = no common repetition
	// Distinguishable is true when the interval of the ratio excludes 1, which
	// is the sign test. Fewer than 6 common repetitions cannot tell.
	Distinguishable bool `json:"distinguishable"`
}

// Paired compares all cells with their baseline, if they have one.
func Paired(cells []Cell, baseline func(scenario string) string) []Pair {
	byKey := map[Key]Cell{}
	for _, c := range cells {
		byKey[c.Key] = c
	}
	var pairs []Pair
	for _, c := range cells {
		k := c.Key
		k.Policy = baseline(c.Scenario)
		base, ok := byKey[k]
		if !ok || k.Policy == c.Policy {
			continue
		}
		p := Pair{Key: c.Key, Source: c.Source, Baseline: k.Policy, P99Ratio: pairedRatio(c, base)}
		p.Distinguishable = p.P99Ratio != nil && excludesOne(*p.P99Ratio)
		pairs = append(pairs, p)
	}
	return pairs
}

func pairedRatio(c, base Cell) *Estimate {
	return estimate(runRatios(c, base, func(l experiments.Latency) float64 { return l.P99 }))
}

// runRatios divides each run's value by that of the base's run of the same
// repetition.
func runRatios(c, base Cell, of func(experiments.Latency) float64) []float64 {
	bases := map[int]float64{}
	for _, r := range base.runs {
		bases[r.Trial.Rep] = of(*r.LatencyMs)
	}
	var ratios []float64
	for _, r := range c.runs {
		if b, ok := bases[r.Trial.Rep]; ok && b > 0 {
			ratios = append(ratios, of(*r.LatencyMs)/b)
		}
	}
	return ratios
}

func excludesOne(e Estimate) bool {
	return e.Lo != nil && e.Hi != nil && (*e.Lo > 1 || *e.Hi < 1)
}
