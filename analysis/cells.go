package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"heartbed/experiments"
)

// Source says how far a number is from a real cluster.
type Source string

const (
	Simulated Source = "simulated" // a model of everything but the policy
	Emulated  Source = "emulated"  // real processes and packets on shaped, shared hardware
	Measured  Source = "measured"  // a real cluster, or logs of one
)

// SourceOf is the source of a backend's numbers. A backend that is not known
// is taken for emulated: neither a model nor known to be a real cluster.
func SourceOf(backend string) Source {
	base, _, _ := strings.Cut(backend, scaleMark)
	switch base {
	case "sim":
		return Simulated
	case "cluster", BackendWrk2:
		return Measured
	}
	return Emulated
}

// scaleMark parts the name of a backend from the factor by which CPU and load
// were divided. Scaled runs are as busy but slower: they are cells, sections
// and figures of their own and no claim is judged on them.
const scaleMark = "÷"

// keyOf is the cell that a trial belongs to.
func keyOf(t experiments.Trial) Key {
	backend := t.Backend
	if t.Scale > 1 {
		backend += fmt.Sprintf("%s%g", scaleMark, t.Scale)
	}
	return Key{t.Scenario, t.App, backend, t.Policy, t.RPS}
}

// Key names a cell: the runs that differ only in repetition and seed.
type Key struct {
	Scenario string  `json:"scenario"`
	App      string  `json:"app"`
	Backend  string  `json:"backend"`
	Policy   string  `json:"policy"`
	RPS      float64 `json:"rps"`
}

func (k Key) String() string {
	return fmt.Sprintf("%s/%s/%s at %s RPS (%s)", k.Scenario, k.App, k.Policy, formatRate(k.RPS), k.Backend)
}

// Cell is what is known of a key from its runs. Runs judged INVALID are
// counted in Invalid and enter nothing else; SATURATED runs are in N too.
// A pointer is nil where nothing was measured, which is not zero.
type Cell struct {
	Key
	Source    Source    `json:"source"`
	N         int       `json:"n"`
	Saturated int       `json:"saturated"`
	Invalid   int       `json:"invalid"`
	P99Ms     *Estimate `json:"p99Ms"`
	P50Ms     *Estimate `json:"p50Ms"`
	P90Ms     *Estimate `json:"p90Ms"`
	P999Ms    *Estimate `json:"p999Ms"`
	MeanMs    *float64  `json:"meanMs"`   // median over the runs
	CPUGapPp  *float64  `json:"cpuGapPp"` // gap of the replicas' means of a run, percentage points; median over the runs
	// CPUGapWindowPp is the median over the runs of the median over the
	// control windows of the gap within a window.
	CPUGapWindowPp *float64     `json:"cpuGapWindowPp"`
	Errors         int64        `json:"errors"`            // of all runs in N
	Scaling        *CellScaling `json:"scaling,omitempty"` // nil = the replicas stayed as they were
	Warnings       []string     `json:"warnings,omitempty"`

	mean *Estimate
	runs []experiments.Result // the runs in N, by repetition
}

// Cells groups the runs of the set, in order of scenario, app, backend, rate
// and policy.
func (s Set) Cells() []Cell {
	groups := map[Key][]experiments.Result{}
	for _, r := range s.Results {
		k := keyOf(r.Trial)
		groups[k] = append(groups[k], r)
	}
	cells := make([]Cell, 0, len(groups))
	for k, runs := range groups {
		cells = append(cells, newCell(k, runs))
	}
	slices.SortFunc(cells, func(a, b Cell) int { return compareKeys(a.Key, b.Key) })
	return cells
}

func compareKeys(a, b Key) int {
	return cmp.Or(
		strings.Compare(a.Scenario, b.Scenario),
		strings.Compare(a.App, b.App),
		strings.Compare(a.Backend, b.Backend),
		cmp.Compare(a.RPS, b.RPS),
		comparePolicies(a.Policy, b.Policy),
	)
}

func newCell(k Key, all []experiments.Result) Cell {
	c := Cell{Key: k, Source: SourceOf(k.Backend)}
	for _, r := range all {
		if r.Verdict == experiments.Invalid || r.LatencyMs == nil {
			c.Invalid++
			continue
		}
		if r.Verdict == experiments.Saturated {
			c.Saturated++
		}
		c.runs = append(c.runs, r)
		c.Errors += r.Errors
	}
	slices.SortFunc(c.runs, func(a, b experiments.Result) int {
		return cmp.Or(cmp.Compare(a.Trial.Rep, b.Trial.Rep), strings.Compare(a.Trial.ID, b.Trial.ID))
	})
	c.N = len(c.runs)
	c.P50Ms = c.latency(func(l experiments.Latency) float64 { return l.P50 })
	c.P90Ms = c.latency(func(l experiments.Latency) float64 { return l.P90 })
	c.P99Ms = c.latency(func(l experiments.Latency) float64 { return l.P99 })
	c.P999Ms = c.latency(func(l experiments.Latency) float64 { return l.P999 })
	c.mean = c.latency(func(l experiments.Latency) float64 { return l.Mean })
	c.MeanMs = c.mean.center()
	c.CPUGapPp = c.medianOf(func(r experiments.Result) *float64 { return r.CPUGapPp })
	c.CPUGapWindowPp = c.medianOf(func(r experiments.Result) *float64 { return r.CPUGapWindowPp })
	c.Scaling = c.scaling()
	c.Warnings = c.mixed()
	return c
}

func (c Cell) latency(of func(experiments.Latency) float64) *Estimate {
	values := make([]float64, len(c.runs))
	for i, r := range c.runs {
		values[i] = of(*r.LatencyMs)
	}
	return estimate(values)
}

// medianOf is the median over the runs that have the value; nil = none has.
func (c Cell) medianOf(of func(experiments.Result) *float64) *float64 {
	var values []float64
	for _, r := range c.runs {
		if v := of(r); v != nil {
			values = append(values, *v)
		}
	}
	if e := estimate(values); e != nil {
		return &e.Median
	}
	return nil
}

// cpuExtremes are the lowest mean, the highest mean and the highest window of
// the replicas' utilisation, percent; medians over the runs, nil = no run
// measured CPU.
func (c Cell) cpuExtremes() (lowest, highest, peak *float64) {
	pick := func(start float64, better func(a, b float64) float64, of func(experiments.CPUUsage) float64) *float64 {
		return c.medianOf(func(r experiments.Result) *float64 {
			if len(r.CPU) == 0 {
				return nil
			}
			v := start
			for _, usage := range r.CPU {
				v = better(v, 100*of(usage))
			}
			return &v
		})
	}
	mean := func(u experiments.CPUUsage) float64 { return u.Mean }
	lowest = pick(math.Inf(1), math.Min, mean)
	highest = pick(math.Inf(-1), math.Max, mean)
	peak = pick(math.Inf(-1), math.Max, func(u experiments.CPUUsage) float64 { return u.Max })
	return lowest, highest, peak
}

// mixed finds signs that the runs of a cell differ in more than repetition
// and seed, so that their median would mean nothing.
func (c Cell) mixed() []string {
	var warnings []string
	say := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	reps := map[int]string{}
	seeds := map[uint64]int{}
	offered := [2]float64{math.Inf(1), 0}
	for i, r := range c.runs {
		t := r.Trial
		if other, ok := reps[t.Rep]; ok {
			say("repetition %d is there twice (trials %s and %s): their settings differ", t.Rep, other, t.ID)
		}
		reps[t.Rep] = t.ID
		if rep, ok := seeds[t.Seed]; ok && t.Seed != 0 && rep != t.Rep {
			say("repetitions %d and %d share seed %d: they are not independent", rep, t.Rep, t.Seed)
		}
		seeds[t.Seed] = t.Rep
		offered[0] = math.Min(offered[0], float64(r.Requests.Offered))
		offered[1] = math.Max(offered[1], float64(r.Requests.Offered))
		if i > 0 && !sameReplicas(c.runs[0].CPU, r.CPU) {
			say("repetition %d ran other replicas than repetition %d", t.Rep, c.runs[0].Trial.Rep)
		}
	}
	// Poisson arrivals differ by a few percent; another duration by far more.
	if offered[0] > 0 && offered[1] > 1.25*offered[0] {
		say("runs were offered %s to %s requests: their durations differ", formatCount(offered[0]), formatCount(offered[1]))
	}
	return warnings
}

func sameReplicas(a, b map[string]experiments.CPUUsage) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return true
}
