package analysis

import (
	"bytes"
	"encoding/csv"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// tables gives the CSV files by name. Numbers are written in full; an empty
// field is a value that was not measured.
func tables(set Set, s Summary) map[string][]byte {
	out := map[string][]byte{
		"cells.csv":  cellsTable(s.Cells),
		"runs.csv":   runsTable(set),
		"paired.csv": pairedTable(s.Pairs),
		"claims.csv": claimsTable(s.Claims),
		"cpu.csv":    cpuTable(s.Cells),
		"shares.csv": sharesTable(s.Cells),
		"stages.csv": stagesTable(s.Cells),
	}
	if slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Scaling != nil }) {
		out["scaling.csv"] = scalingTable(set)
	}
	if len(s.Deviations) > 0 {
		out["deviation.csv"] = deviationTable(s.Deviations)
	}
	if len(set.Scale) > 0 {
		out["scale.csv"] = scaleTable(set.Scale)
	}
	return out
}

// table collects rows of a CSV file.
type table struct {
	b bytes.Buffer
	w *csv.Writer
}

func newTable(header ...string) *table {
	t := &table{}
	t.w = csv.NewWriter(&t.b)
	t.row(header...)
	return t
}

func (t *table) row(fields ...string) { _ = t.w.Write(fields) } // a bytes.Buffer takes every write

func (t *table) bytes() []byte {
	t.w.Flush()
	return t.b.Bytes()
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func optional(v *float64) string {
	if v == nil {
		return ""
	}
	return number(*v)
}

var keyHeader = []string{"source", "scenario", "app", "backend", "rps", "policy"}

func keyFields(source Source, k Key) []string {
	return []string{string(source), k.Scenario, k.App, k.Backend, number(k.RPS), k.Policy}
}

func estimateFields(e *Estimate) []string {
	if e == nil {
		return []string{"", "", ""}
	}
	return []string{number(e.Median), optional(e.Lo), optional(e.Hi)}
}

func cellsTable(cells []Cell) []byte {
	t := newTable(append(slices.Clone(keyHeader), "n", "saturated", "invalid",
		"mean_ms", "p50_ms", "p50_lo", "p50_hi", "p90_ms", "p90_lo", "p90_hi", "p99_ms", "p99_lo", "p99_hi", "p999_ms", "p999_lo", "p999_hi",
		"cpu_gap_pp", "cpu_gap_window_pp", "errors")...)
	for _, c := range cells {
		row := append(keyFields(c.Source, c.Key), strconv.Itoa(c.N), strconv.Itoa(c.Saturated), strconv.Itoa(c.Invalid), optional(c.MeanMs))
		for _, e := range []*Estimate{c.P50Ms, c.P90Ms, c.P99Ms, c.P999Ms} {
			row = append(row, estimateFields(e)...)
		}
		t.row(append(row, optional(c.CPUGapPp), optional(c.CPUGapWindowPp), strconv.FormatInt(c.Errors, 10))...)
	}
	return t.bytes()
}

func runsTable(set Set) []byte {
	t := newTable(append(slices.Clone(keyHeader), "rep", "seed", "id", "verdict", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms",
		"offered_rps", "achieved_rps", "errors", "reasons")...)
	for _, r := range set.Results {
		k := keyOf(r.Trial)
		row := append(keyFields(SourceOf(k.Backend), k), strconv.Itoa(r.Trial.Rep), strconv.FormatUint(r.Trial.Seed, 10), r.Trial.ID, string(r.Verdict))
		if l := r.LatencyMs; l != nil {
			row = append(row, number(l.Mean), number(l.P50), number(l.P90), number(l.P99), number(l.P999), number(l.Max))
		} else {
			row = append(row, "", "", "", "", "", "")
		}
		texts := slices.Concat(r.Reasons, r.StepErrors, r.Warnings)
		if r.Error != "" {
			texts = append([]string{r.Error}, texts...)
		}
		t.row(append(row, number(r.OfferedRPS), number(r.AchievedRPS), strconv.FormatInt(r.Errors, 10), strings.Join(texts, "; "))...)
	}
	return t.bytes()
}

func pairedTable(pairs []Pair) []byte {
	t := newTable(append(slices.Clone(keyHeader), "baseline", "n", "p99_ratio", "lo", "hi", "distinguishable")...)
	for _, p := range pairs {
		n := 0
		if p.P99Ratio != nil {
			n = p.P99Ratio.N
		}
		row := append(keyFields(p.Source, p.Key), p.Baseline, strconv.Itoa(n))
		row = append(row, estimateFields(p.P99Ratio)...)
		t.row(append(row, strconv.FormatBool(p.Distinguishable))...)
	}
	return t.bytes()
}

func claimsTable(claims []Judgement) []byte {
	t := newTable("id", "paper", "says", "kind", "published", "measured", "unit", "source", "verdict", "reason", "note")
	for _, c := range claims {
		t.row(c.ID, c.Paper, c.Says, c.Kind, number(c.Published), optional(c.Measured), c.Unit, string(c.Source), string(c.Verdict), c.Reason, c.Note)
	}
	return t.bytes()
}

func cpuTable(cells []Cell) []byte {
	t := newTable(append(slices.Clone(keyHeader), "replica", "mean_pct", "peak_window_pct")...)
	for _, c := range cells {
		for _, u := range c.replicaCPU() {
			t.row(append(keyFields(c.Source, c.Key), u.replica, number(u.mean), number(u.peak))...)
		}
	}
	return t.bytes()
}

func sharesTable(cells []Cell) []byte {
	t := newTable(append(slices.Clone(keyHeader), "rep", "from", "to", "intended", "seen", "requests")...)
	for _, c := range cells {
		for _, r := range c.runs {
			for _, s := range r.Shares {
				t.row(append(keyFields(c.Source, c.Key), strconv.Itoa(r.Trial.Rep), s.From, s.To, optional(s.Intended), number(s.Seen), strconv.FormatInt(s.Requests, 10))...)
			}
		}
	}
	return t.bytes()
}

func stagesTable(cells []Cell) []byte {
	t := newTable(append(slices.Clone(keyHeader), "stage", "seconds")...)
	for _, c := range cells {
		stages := c.stageSeconds()
		for _, name := range slices.Sorted(maps.Keys(stages)) {
			t.row(append(keyFields(c.Source, c.Key), name, number(stages[name]))...)
		}
	}
	return t.bytes()
}

func deviationTable(all []Deviations) []byte {
	t := newTable("scenario", "app", "measured_by", "backend", "policy", "rps", "metric", "measured_ms", "simulated_ms", "deviation_pct")
	for _, d := range all {
		for _, c := range d.Cells {
			for _, v := range c.Values {
				t.row(d.Scenario, d.App, d.Measured, d.Backend, c.Policy, number(c.RPS), v.Metric, number(v.Measured), number(v.Simulated), number(v.Pct))
			}
		}
	}
	return t.bytes()
}

func scaleTable(points []ScalePoint) []byte {
	t := newTable("policy", "replicas", "nodes", "components", "steps", "ms")
	for _, policy := range scalePolicies(points) {
		for _, p := range scaleOf(points, policy) {
			t.row(p.Policy, strconv.Itoa(p.Replicas), strconv.Itoa(p.Nodes), strconv.Itoa(p.Components), strconv.Itoa(p.Steps), number(p.Ms))
		}
	}
	return t.bytes()
}
