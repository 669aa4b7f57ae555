package analysis

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"heartbed/experiments"
)

// CellScaling is what became of the scaled replicas in the runs of a cell,
// medians but where it says otherwise.
type CellScaling struct {
	CoveragePct Estimate `json:"coveragePct"`
	// Zero counts the runs that covered nothing, to two decimals.
	Zero                int     `json:"zero"`
	Start               Delay   `json:"startSeconds"`
	ToMax               Delay   `json:"maxSeconds"`
	UnderReplicaSeconds float64 `json:"underReplicaSeconds"`
	OverReplicaSeconds  float64 `json:"overReplicaSeconds"`
	Failed              float64 `json:"failedPct"` // requests without an answer, of those offered
}

// Delay over the runs of a cell, seconds. A run that never got there counts
// with the time it had.
type Delay struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	Never  int     `json:"never"`
	N      int     `json:"n"`
}

// scaling sums up the runs that have scaled replicas; nil = none has.
func (c Cell) scaling() *CellScaling {
	var coverage, under, over, failed []float64
	var start, toMax []*float64
	var most []float64
	s := &CellScaling{}
	for _, r := range c.runs {
		if r.Scaling == nil {
			continue
		}
		coverage = append(coverage, r.Scaling.CoveragePct)
		if r.Scaling.CoveragePct < 0.005 {
			s.Zero++
		}
		start, toMax = append(start, r.Scaling.StartSeconds), append(toMax, r.Scaling.MaxSeconds)
		most = append(most, r.Scaling.PeakSeconds)
		under, over = append(under, r.Scaling.UnderReplicaSeconds), append(over, r.Scaling.OverReplicaSeconds)
		failed = append(failed, 100*float64(r.Errors)/float64(r.Requests.Offered))
	}
	if len(coverage) == 0 {
		return nil
	}
	s.CoveragePct = *estimate(coverage)
	s.Start, s.ToMax = newDelay(start, most), newDelay(toMax, most)
	s.UnderReplicaSeconds, s.OverReplicaSeconds, s.Failed = estimate(under).Median, estimate(over).Median, estimate(failed).Median
	return s
}

func newDelay(seconds []*float64, most []float64) Delay {
	var d Delay
	values := slices.Clone(most)
	for i, v := range seconds {
		if v == nil {
			d.Never++
			continue
		}
		values[i] = *v
	}
	e := estimate(values)
	d.Min, d.Median, d.Max, d.N = e.Min, e.Median, e.Max, e.N
	return d
}

// ofScaling reads a metric of scaled replicas.
func ofScaling(of func(CellScaling) float64) func(Cell) *float64 {
	return func(c Cell) *float64 {
		if c.Scaling == nil {
			return nil
		}
		v := of(*c.Scaling)
		return &v
	}
}

// ahead compares two cells run by run, which had the same load and the same
// phases: in what part the first covers more, and by how many seconds it starts
// earlier, at least and at most, where both start.
func (l lab) ahead(m Measure) (measurement, error) {
	k := m.Of.cells()[0]
	_, cells, err := l.metric("coverage", []Key{k, m.Against.against(k)[0]})
	if err != nil {
		return measurement{}, err
	}
	rivals := map[int]*experiments.Scaling{}
	for _, r := range cells[1].runs {
		rivals[r.Trial.Rep] = r.Scaling
	}
	better, pairs := 0, 0
	var leads []float64
	for _, r := range cells[0].runs {
		own, rival := r.Scaling, rivals[r.Trial.Rep]
		if own == nil || rival == nil {
			continue
		}
		pairs++
		if own.CoveragePct > rival.CoveragePct {
			better++
		}
		if own.StartSeconds != nil && rival.StartSeconds != nil {
			leads = append(leads, *rival.StartSeconds-*own.StartSeconds)
		}
	}
	if m.Form == FormBetterRuns && pairs > 0 {
		return measurement{value: 100 * float64(better) / float64(pairs), cells: cells}, nil
	}
	if len(leads) == 0 {
		return measurement{}, missingError{[]string{fmt.Sprintf("%s and %s have no run in which both scale out", cells[0].Key, cells[1].Policy)}}
	}
	return measurement{value: takers[m.Take](leads), cells: cells}, nil
}

func scalingTable(set Set) []byte {
	t := newTable(append(slices.Clone(keyHeader), "rep", "seed", "coverage_pct", "start_s", "max_s", "under_replica_s", "over_replica_s", "failed", "offered", "p99_ms")...)
	for _, r := range set.Results {
		s := r.Scaling
		if s == nil {
			continue
		}
		p99 := ""
		if r.LatencyMs != nil {
			p99 = number(r.LatencyMs.P99)
		}
		k := keyOf(r.Trial)
		t.row(append(keyFields(SourceOf(k.Backend), k), strconv.Itoa(r.Trial.Rep), strconv.FormatUint(r.Trial.Seed, 10), number(s.CoveragePct), optional(s.StartSeconds), optional(s.MaxSeconds),
			number(s.UnderReplicaSeconds), number(s.OverReplicaSeconds), strconv.FormatInt(r.Errors, 10), strconv.FormatInt(r.Requests.Offered, 10), p99)...)
	}
	return t.bytes()
}

// scalingRow is a method's line of the table of scaled replicas.
type scalingRow struct {
	Policy, Title, Colour                              string
	Coverage, Range, Start, ToMax, Under, Over, Failed string
	P99                                                string
}

func newScalingRow(c Cell, title string, colours palette) scalingRow {
	s := c.Scaling
	r := scalingRow{
		Policy: c.Policy, Title: title, Colour: colours.css(c.Policy), P99: "-",
		Coverage: fmt.Sprintf("%.1f", s.CoveragePct.Median), Range: fmt.Sprintf("%.1f to %.1f", s.CoveragePct.Min, s.CoveragePct.Max),
		Start: s.Start.text(), ToMax: s.ToMax.text(),
		Under: formatCount(s.UnderReplicaSeconds), Over: formatCount(s.OverReplicaSeconds), Failed: trimZero(s.Failed),
	}
	if c.P99Ms != nil {
		r.P99 = formatMs(c.P99Ms.Median)
	}
	return r
}

// text writes the median, the range and the runs that never got there.
func (d Delay) text() string {
	text := fmt.Sprintf("%.0f (%.0f to %.0f)", d.Median, d.Min, d.Max)
	if 2*d.Never >= d.N {
		text = fmt.Sprintf("never (%.0f to never)", d.Min)
	} else if d.Never > 0 {
		text = fmt.Sprintf("%.0f (%.0f to never)", d.Median, d.Min)
	}
	if d.Never == d.N {
		return "never"
	}
	if d.Never > 0 {
		text += fmt.Sprintf(", %d never", d.Never)
	}
	return text
}

// replicasFigure shows the ready replicas over time, medians over the runs,
// against the number needed; nil without scaled replicas.
func replicasFigure(cells []Cell, colours palette) ([]byte, error) {
	var lines []line
	for _, c := range cells {
		var runs [][]experiments.ReplicasAt
		for _, r := range c.runs {
			if r.Scaling != nil {
				runs = append(runs, r.Scaling.Replicas)
			}
		}
		if len(runs) == 0 {
			continue
		}
		if len(lines) == 0 {
			lines = append(lines, line{name: "needed", colour: ink, dashed: true, points: overTime(runs[:1], func(r experiments.ReplicasAt) float64 { return r.Target })})
		}
		lines = append(lines, line{name: c.Policy, colour: colours[c.Policy], points: overTime(runs, func(r experiments.ReplicasAt) float64 { return float64(r.Ready) })})
	}
	bottom := 0.0
	return drawKeyedLines(lines, lineAxes{xLabel: "seconds of the load", yLabel: "ready replicas", yMin: &bottom})
}

// overTime is the median over the runs second by second, where it changes.
func overTime(runs [][]experiments.ReplicasAt, of func(experiments.ReplicasAt) float64) []linePoint {
	last := 0.0
	for _, run := range runs {
		last = math.Max(last, run[len(run)-1].AtSeconds)
	}
	at := make([]int, len(runs))
	var points []linePoint
	for second := 0.0; second <= last+1; second++ {
		values := make([]float64, len(runs))
		for i, run := range runs {
			for at[i]+1 < len(run) && run[at[i]+1].AtSeconds <= second {
				at[i]++
			}
			values[i] = of(run[at[i]])
		}
		if y := estimate(values).Median; len(points) == 0 || points[len(points)-1].y != y || second > last {
			points = append(points, plain(second, y))
		}
	}
	return steps(points)
}
