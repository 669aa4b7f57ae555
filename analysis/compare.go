package analysis

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
)

// Comparison sets the cells of two results directories beside each other.
type Comparison struct {
	A     string         `json:"a"`
	B     string         `json:"b"`
	Cells []ComparedCell `json:"cells"`
	OnlyA []Key          `json:"onlyA,omitempty"`
	OnlyB []Key          `json:"onlyB,omitempty"`
}

// ComparedCell is a cell that both have.
type ComparedCell struct {
	Key                  // as A has it
	SourceA Source       `json:"sourceA"`
	SourceB Source       `json:"sourceB"`
	A       ComparedSide `json:"p99MsA"`
	B       ComparedSide `json:"p99MsB"`
	Ratio   *float64     `json:"ratio"` // median of B over median of A; nil = a side has no valid run
	// P is the probability of so large a difference by chance (Mann-Whitney U
	// test on the runs' P99).
	P               float64 `json:"p"`
	Distinguishable bool    `json:"distinguishable"`
}

// ComparedSide is one side of a cell.
type ComparedSide struct {
	N        int       `json:"n"`
	Estimate *Estimate `json:"estimate"`
}

// Compare reads two results directories and compares the P99 of the cells they
// have in common. A scenario or backend of which each directory holds only one
// need not have the same name.
func Compare(dirA, dirB string) (Comparison, error) {
	a, errA := Read(dirA)
	b, errB := Read(dirB)
	for _, err := range []error{errA, errB} {
		if err != nil {
			return Comparison{}, err
		}
	}
	return compareCells(dirA, dirB, a.Cells(), b.Cells()), nil
}

func compareCells(nameA, nameB string, a, b []Cell) Comparison {
	c := Comparison{A: nameA, B: nameB}
	match := matcher(a, b)
	other := map[Key]Cell{}
	for _, cell := range b {
		other[match(cell.Key)] = cell
	}
	paired := map[Key]bool{}
	for _, cell := range a {
		k := match(cell.Key)
		partner, ok := other[k]
		if !ok {
			c.OnlyA = append(c.OnlyA, cell.Key)
			continue
		}
		paired[k] = true
		c.Cells = append(c.Cells, compareCell(cell, partner))
	}
	for _, cell := range b {
		if !paired[match(cell.Key)] {
			c.OnlyB = append(c.OnlyB, cell.Key)
		}
	}
	return c
}

// matcher gives the part of a key that two cells must share to be compared.
func matcher(a, b []Cell) func(Key) Key {
	several := func(of func(Key) string) bool {
		for _, cells := range [][]Cell{a, b} {
			if slices.ContainsFunc(cells, func(c Cell) bool { return of(c.Key) != of(cells[0].Key) }) {
				return true
			}
		}
		return false
	}
	byScenario := several(func(k Key) string { return k.Scenario })
	byBackend := several(func(k Key) string { return k.Backend })
	return func(k Key) Key {
		if !byScenario {
			k.Scenario = ""
		}
		if !byBackend {
			k.Backend = ""
		}
		return k
	}
}

func compareCell(a, b Cell) ComparedCell {
	c := ComparedCell{Key: a.Key, SourceA: a.Source, SourceB: b.Source, A: ComparedSide{a.N, a.P99Ms}, B: ComparedSide{b.N, b.P99Ms}, P: 1}
	if a.N == 0 || b.N == 0 {
		return c
	}
	if a.P99Ms.Median > 0 {
		ratio := b.P99Ms.Median / a.P99Ms.Median
		c.Ratio = &ratio
	}
	sample := func(cell Cell) *benchmath.Sample {
		values := make([]float64, len(cell.runs))
		for i, r := range cell.runs {
			values[i] = r.LatencyMs.P99
		}
		return benchmath.NewSample(values, &benchmath.DefaultThresholds)
	}
	// An error of the test, as when all values are equal, gives P = 1.
	test := benchmath.AssumeNothing.Compare(sample(a), sample(b))
	c.P, c.Distinguishable = test.P, test.P <= test.Alpha
	return c
}

// Text is the comparison as a table for a terminal.
func (c Comparison) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A = %s\nB = %s\nP99 in ms: median of n runs. Ratio B/A; ~ = not distinguishable (Mann-Whitney U, 5 %%).\n\n", c.A, c.B)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scenario\tapp\tRPS\tpolicy\tA\tn\tsource\tB\tn\tsource\tratio\t")
	for _, cell := range c.Cells {
		ratio := "-"
		if cell.Ratio != nil {
			ratio = formatRatio(*cell.Ratio)
			if !cell.Distinguishable {
				ratio += " ~"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t\n", cell.Scenario, cell.App, formatRate(cell.RPS), cell.Policy,
			cell.A.text(), cell.A.N, cell.SourceA, cell.B.text(), cell.B.N, cell.SourceB, ratio)
	}
	_ = w.Flush() // a strings.Builder takes every write
	for _, only := range []struct {
		side string
		keys []Key
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		for _, k := range only.keys {
			fmt.Fprintf(&b, "only in %s: %s\n", only.side, k)
		}
	}
	return b.String()
}

func (s ComparedSide) text() string {
	if s.Estimate == nil {
		return "-"
	}
	return formatMs(s.Estimate.Median)
}
