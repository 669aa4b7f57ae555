package analysis

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed measured/icsoc-a.yaml
var icsocAYAML []byte

// Reference is a set of measured medians that others published, kept as data.
type Reference struct {
	Title    string      `yaml:"title"`
	Source   string      `yaml:"source"`
	Scenario string      `yaml:"scenario"`
	App      string      `yaml:"app"`
	Cells    []refMedian `yaml:"cells"`
}

// refMedian is one measured cell: medians over n runs, ms.
type refMedian struct {
	Policy string  `yaml:"policy"`
	RPS    float64 `yaml:"rps"`
	N      int     `yaml:"n"`
	Mean   float64 `yaml:"mean"`
	P50    float64 `yaml:"p50"`
	P90    float64 `yaml:"p90"`
	P99    float64 `yaml:"p99"`
	// Fitted is true for the cells a calibration may be fitted to.
	Fitted bool `yaml:"fitted"`
}

// ICSOCA gives the measured medians of the DAG in the LATA authors' scenario A.
func ICSOCA() (Reference, error) {
	var r Reference
	if err := yaml.Unmarshal(icsocAYAML, &r); err != nil {
		return Reference{}, fmt.Errorf("read measured medians: %w", err)
	}
	return r, nil
}

// cells are the measured medians as cells: no runs, so no interval. Those a
// calibration may be fitted to and those held out are judged apart.
func (r Reference) cells(fitted bool) []Cell {
	var cells []Cell
	for _, m := range r.Cells {
		if m.Fitted != fitted {
			continue
		}
		mean := m.Mean
		cells = append(cells, Cell{
			Key:    Key{Scenario: r.Scenario, App: r.App, Backend: BackendWrk2, Policy: m.Policy, RPS: m.RPS},
			Source: Measured, N: m.N, MeanMs: &mean,
			P50Ms: &Estimate{Median: m.P50, N: m.N}, P90Ms: &Estimate{Median: m.P90, N: m.N}, P99Ms: &Estimate{Median: m.P99, N: m.N},
		})
	}
	return cells
}

// Deviations is how far a model is from what was measured.
type Deviations struct {
	Scenario string      `json:"scenario"`
	App      string      `json:"app"`
	Measured string      `json:"measured"` // where the measured values are from
	Nearer   Source      `json:"nearer"`   // what they are: measured or emulated
	Backend  string      `json:"backend"`  // of the model
	Cells    []Deviation `json:"cells"`
	// Of all values (cells x mean, P50, P90, P99), percent.
	MeanAbsError float64 `json:"meanAbsErrorPct"`
	Within10     float64 `json:"within10Pct"`
	Within20     float64 `json:"within20Pct"`
	Within30     float64 `json:"within30Pct"`
	// Order counts the pairs of methods, at one rate and in one metric, whose
	// measured values differ by more than 15 %.
	OrderPairs int      `json:"orderPairs"`
	OrderRight int      `json:"orderRight"`
	OrderWrong []string `json:"orderWrong,omitempty"` // names the pairs in the wrong order
}

// Deviation is one cell, measured beside simulated.
type Deviation struct {
	Policy string      `json:"policy"`
	RPS    float64     `json:"rps"`
	Values []SideValue `json:"values"` // mean, P50, P90, P99
}

// SideValue is one metric of a cell on both sides, ms.
type SideValue struct {
	Metric    string  `json:"metric"`
	Measured  float64 `json:"measured"`
	Simulated float64 `json:"simulated"`
	Pct       float64 `json:"pct"` // of the measured value
}

var sideMetrics = []string{"mean", "p50", "p90", "p99"}

// Deviate puts measured and simulated cells with the same scenario,
// application, policy and rate beside each other, one Deviations a scenario,
// application and simulated backend. Cells without a partner are left out.
func Deviate(measured, simulated []Cell, origin string) []Deviations {
	partners := map[Key]Cell{}
	for _, c := range measured {
		k := c.Key
		k.Backend = ""
		partners[k] = c
	}
	var all []Deviations
	for _, c := range simulated {
		k := c.Key
		k.Backend = ""
		m, ok := partners[k]
		if !ok || m.N == 0 || c.N == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(d Deviations) bool {
			return d.Scenario == c.Scenario && d.App == c.App && d.Backend == c.Backend
		})
		if i < 0 {
			i = len(all)
			all = append(all, Deviations{Scenario: c.Scenario, App: c.App, Backend: c.Backend, Measured: origin, Nearer: m.Source})
		}
		all[i].Cells = append(all[i].Cells, sideBySide(m, c))
	}
	for i := range all {
		all[i].sum()
	}
	return all
}

// SideBySide compares what is nearer to a real cluster with what is further:
// measured cells with modelled ones, those of an emulating backend with those of
// every backend before it in backendOrder at the same scale, and the measured
// medians of the ICSOC experiment that ship with the program with their model;
// those held out of the calibration are judged apart.
func SideBySide(cells []Cell) ([]Deviations, error) {
	bySource := map[Source][]Cell{}
	scales := map[string]map[string][]Cell{} // by scale and backend
	for _, c := range cells {
		bySource[c.Source] = append(bySource[c.Source], c)
		backend, scale, _ := strings.Cut(c.Backend, scaleMark)
		if scales[scale] == nil {
			scales[scale] = map[string][]Cell{}
		}
		scales[scale][backend] = append(scales[scale][backend], c)
	}
	ref, err := ICSOCA()
	if err != nil {
		return nil, err
	}
	modelled := slices.Concat(bySource[Simulated], bySource[Emulated])
	all := Deviate(bySource[Measured], modelled, "the measured runs in this report")
	for _, scale := range slices.Sorted(maps.Keys(scales)) {
		var further []Cell
		for _, backend := range backendOrder {
			here := scales[scale][backend]
			if SourceOf(backend) == Emulated {
				all = append(all, Deviate(here, further, "the runs on "+backend+" in this report")...)
			}
			further = append(further, here...)
		}
	}
	all = append(all, Deviate(ref.cells(true), modelled, ref.Source)...)
	return append(all, Deviate(ref.cells(false), modelled, ref.Source+", held out of the calibration")...), nil
}

func sideBySide(m, s Cell) Deviation {
	d := Deviation{Policy: s.Policy, RPS: s.RPS}
	for _, name := range sideMetrics {
		mv, sv := metrics[name](m), metrics[name](s)
		if mv == nil || sv == nil || *mv <= 0 {
			continue
		}
		d.Values = append(d.Values, SideValue{name, *mv, *sv, 100 * (*sv/(*mv) - 1)})
	}
	return d
}

func (d *Deviations) sum() {
	var abs []float64
	for _, c := range d.Cells {
		for _, v := range c.Values {
			abs = append(abs, math.Abs(v.Pct))
		}
	}
	if len(abs) > 0 {
		d.MeanAbsError = mean(abs)
		d.Within10, d.Within20, d.Within30 = shareWithin(abs, 10), shareWithin(abs, 20), shareWithin(abs, 30)
	}
	for i, a := range d.Cells {
		for _, b := range d.Cells[i+1:] {
			if a.RPS == b.RPS {
				d.countOrder(a, b)
			}
		}
	}
}

func shareWithin(values []float64, limit float64) float64 {
	n := 0
	for _, v := range values {
		if v <= limit {
			n++
		}
	}
	return 100 * float64(n) / float64(len(values))
}

// orderPct is how much measured values must differ for their order to count.
const orderPct = 0.15

func (d *Deviations) countOrder(a, b Deviation) {
	for _, va := range a.Values {
		i := slices.IndexFunc(b.Values, func(v SideValue) bool { return v.Metric == va.Metric })
		if i < 0 || !differ(va.Measured, b.Values[i].Measured, orderPct) {
			continue
		}
		vb := b.Values[i]
		d.OrderPairs++
		if (va.Measured < vb.Measured) == (va.Simulated < vb.Simulated) && va.Simulated != vb.Simulated {
			d.OrderRight++
			continue
		}
		d.OrderWrong = append(d.OrderWrong, fmt.Sprintf("%s against %s at %s RPS, %s: measured %s and %s, simulated %s and %s",
			a.Policy, b.Policy, formatRate(a.RPS), va.Metric,
			formatMs(va.Measured), formatMs(vb.Measured), formatMs(va.Simulated), formatMs(vb.Simulated)))
	}
}
