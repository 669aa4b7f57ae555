package analysis

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"heartbed/experiments"
)

// metrics says how each metric of claims.yaml is read from a cell; nil = the
// cell does not have it.
var metrics = map[string]func(Cell) *float64{
	"p50":          func(c Cell) *float64 { return c.P50Ms.center() },
	"p90":          func(c Cell) *float64 { return c.P90Ms.center() },
	"p99":          func(c Cell) *float64 { return c.P99Ms.center() },
	"p999":         func(c Cell) *float64 { return c.P999Ms.center() },
	"mean":         func(c Cell) *float64 { return c.MeanMs },
	"cpuGap":       func(c Cell) *float64 { return c.CPUGapPp },
	"cpuGapWindow": func(c Cell) *float64 { return c.CPUGapWindowPp },
	"cpuLowest":    func(c Cell) *float64 { v, _, _ := c.cpuExtremes(); return v },
	"cpuHighest":   func(c Cell) *float64 { _, v, _ := c.cpuExtremes(); return v },
	"cpuPeak":      func(c Cell) *float64 { _, _, v := c.cpuExtremes(); return v },
	"coverage":     ofScaling(func(s CellScaling) float64 { return s.CoveragePct.Median }),
	"coverageMin":  ofScaling(func(s CellScaling) float64 { return s.CoveragePct.Min }),
	"coverageMax":  ofScaling(func(s CellScaling) float64 { return s.CoveragePct.Max }),
	"coverageZero": ofScaling(func(s CellScaling) float64 { return 100 * float64(s.Zero) / float64(s.CoveragePct.N) }),
	"start":        ofScaling(func(s CellScaling) float64 { return s.Start.Median }),
	"startMin":     ofScaling(func(s CellScaling) float64 { return s.Start.Min }),
	"startMax":     ofScaling(func(s CellScaling) float64 { return s.Start.Max }),
	"startNever":   ofScaling(func(s CellScaling) float64 { return 100 * float64(s.Start.Never) / float64(s.Start.N) }),
	"toMax":        ofScaling(func(s CellScaling) float64 { return s.ToMax.Median }),
	"toMaxMin":     ofScaling(func(s CellScaling) float64 { return s.ToMax.Min }),
	"toMaxMax":     ofScaling(func(s CellScaling) float64 { return s.ToMax.Max }),
}

func (e *Estimate) center() *float64 {
	if e == nil {
		return nil
	}
	return &e.Median
}

// takers join the values of several cells into one.
var takers = map[string]func([]float64) float64{
	"":       func(v []float64) float64 { return v[0] },
	"min":    slices.Min[[]float64],
	"max":    slices.Max[[]float64],
	"mean":   mean,
	"median": func(v []float64) float64 { return estimate(v).Median },
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// lab is the results on one backend, looked up by cell.
type lab struct {
	set     Set
	cells   map[Key]Cell
	backend string
}

// latencies says where a latency metric stands in a cell and in a run.
var latencies = map[string]struct {
	cell func(Cell) *Estimate
	run  func(experiments.Latency) float64
}{
	"p50":  {func(c Cell) *Estimate { return c.P50Ms }, func(l experiments.Latency) float64 { return l.P50 }},
	"p90":  {func(c Cell) *Estimate { return c.P90Ms }, func(l experiments.Latency) float64 { return l.P90 }},
	"p99":  {func(c Cell) *Estimate { return c.P99Ms }, func(l experiments.Latency) float64 { return l.P99 }},
	"p999": {func(c Cell) *Estimate { return c.P999Ms }, func(l experiments.Latency) float64 { return l.P999 }},
	"mean": {func(c Cell) *Estimate { return c.mean }, func(l experiments.Latency) float64 { return l.Mean }},
}

// measurement is a figure and the cells it came from.
type measurement struct {
	value    float64
	estimate *Estimate // of the value, where it is the latency of one cell
	effect   *Estimate // ratios of runs with the same arrivals, where cells are compared
	cells    []Cell
}

// missingError says what a measure needs and the results do not have.
type missingError struct{ what []string }

func (e missingError) Error() string {
	const shown = 3
	if extra := len(e.what) - shown; extra > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(e.what[:shown], ", "), extra)
	}
	return strings.Join(e.what, ", ")
}

// metric reads a metric of each cell; all that is missing is named.
func (l lab) metric(name string, keys []Key) ([]float64, []Cell, error) {
	var missing missingError
	values := make([]float64, 0, len(keys))
	cells := make([]Cell, 0, len(keys))
	for _, k := range keys {
		k.Backend = l.backend
		c, ok := l.cells[k]
		switch {
		case !ok && !l.ran(k):
			missing.what = append(missing.what, fmt.Sprintf("%s/%s was not run (%s)", k.Scenario, k.App, k.Backend))
			continue
		case !ok:
			missing.what = append(missing.what, k.String()+" was not run")
			continue
		case c.N == 0:
			missing.what = append(missing.what, k.String()+" has no valid run")
			continue
		}
		v := metrics[name](c)
		if v == nil {
			missing.what = append(missing.what, k.String()+" has no "+name)
			continue
		}
		values, cells = append(values, *v), append(cells, c)
	}
	if err := joinMissing(missing); err != nil {
		return nil, nil, err
	}
	return values, cells, nil
}

// ran is true when any cell of the scenario and application is there.
func (l lab) ran(k Key) bool {
	for other := range l.cells {
		if other.Scenario == k.Scenario && other.App == k.App {
			return true
		}
	}
	return false
}

// measure computes the figure of a claim that is bound to cells.
func (l lab) measure(m Measure) (measurement, error) {
	switch m.Form {
	case FormRank:
		return l.rank(m)
	case FormStableFrom, FormStableTo:
		return l.stable(m)
	case FormFasterShare:
		return l.fasterShare(m)
	case FormBetterRuns, FormLead:
		return l.ahead(m)
	}
	var of, against []Key
	for _, k := range m.Of.cells() {
		if m.Against == nil {
			of = append(of, k)
			continue
		}
		for _, base := range m.Against.against(k) {
			of, against = append(of, k), append(against, base)
		}
	}
	values, cells, err := l.metric(m.Metric, of)
	if m.Against == nil {
		if err != nil {
			return measurement{}, err
		}
		measured := measurement{value: takers[m.Take](values), cells: cells}
		if latency, ok := latencies[m.Metric]; ok && len(cells) == 1 {
			measured.estimate = latency.cell(cells[0])
		}
		return measured, nil
	}
	bases, baseCells, baseErr := l.metric(m.Metric, against)
	if err := joinMissing(err, baseErr); err != nil {
		return measurement{}, err
	}
	for i, base := range bases {
		if values[i], err = compare(m.Form, values[i], base); err != nil {
			return measurement{}, fmt.Errorf("%s: %w", baseCells[i].Key, err)
		}
	}
	return measurement{value: takers[m.Take](values), effect: pooledEffect(m.Metric, cells, baseCells), cells: append(cells, baseCells...)}, nil
}

// pooledEffect is the median ratio of all runs of cells to those of bases with
// the same arrivals; nil for what is no latency.
func pooledEffect(metric string, cells, bases []Cell) *Estimate {
	latency, ok := latencies[metric]
	if !ok {
		return nil
	}
	var ratios []float64
	for i, c := range cells {
		ratios = append(ratios, runRatios(c, bases[i], latency.run)...)
	}
	return estimate(ratios)
}

func joinMissing(errs ...error) error {
	var all missingError
	for _, err := range errs {
		if m, ok := err.(missingError); ok {
			all.what = append(all.what, m.what...)
		}
	}
	if len(all.what) == 0 {
		return nil
	}
	slices.Sort(all.what)
	all.what = slices.Compact(all.what)
	return all
}

func compare(form Form, of, against float64) (float64, error) {
	if form == FormDifference {
		return of - against, nil
	}
	if against == 0 {
		return 0, fmt.Errorf("found 0 to compare with")
	}
	switch form {
	case FormReduction:
		return 100 * (1 - of/against), nil
	case FormIncrease:
		return 100 * (of/against - 1), nil
	}
	return of / against, nil
}

// rank is the place of each cell among the policies, joined over the cells.
func (l lab) rank(m Measure) (measurement, error) {
	var ranks []float64
	var used []Cell
	var errs []error
	for _, k := range m.Of.cells() {
		rivals := make([]Key, len(m.Among))
		for i, policy := range m.Among {
			rivals[i] = k
			rivals[i].Policy = policy
		}
		values, cells, err := l.metric(m.Metric, rivals)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		own := values[slices.Index(m.Among, k.Policy)]
		place := 1
		for _, v := range values {
			if v < own {
				place++
			}
		}
		ranks, used = append(ranks, float64(place)), append(used, cells...)
	}
	if err := joinMissing(errs...); err != nil {
		return measurement{}, err
	}
	return measurement{value: takers[m.Take](ranks), cells: used}, nil
}

// stable finds the rates between which a metric stays within a factor.
func (l lab) stable(m Measure) (measurement, error) {
	keys := m.Of.cells()
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.RPS, b.RPS) })
	values, cells, err := l.metric(m.Metric, keys)
	if err != nil {
		return measurement{}, err
	}
	if m.Form == FormStableFrom {
		limit := m.Factor * slices.Min(values)
		first := slices.IndexFunc(values, func(v float64) bool { return v <= limit })
		return measurement{value: keys[first].RPS, cells: cells}, nil
	}
	last := 0
	for last+1 < len(values) && values[last+1] <= m.Factor*values[0] {
		last++
	}
	return measurement{value: keys[last].RPS, cells: cells}, nil
}

// fasterShare compares the quantiles of two cells, from their merged
// histograms, in steps of half a percent.
func (l lab) fasterShare(m Measure) (measurement, error) {
	var shares []float64
	var used []Cell
	var missing missingError
	for _, k := range m.Of.cells() {
		for _, base := range m.Against.against(k) {
			share, cells, err := l.faster(k, base)
			if err != nil {
				missing.what = append(missing.what, err.Error())
				continue
			}
			shares, used = append(shares, share), append(used, cells...)
		}
	}
	if err := joinMissing(missing); err != nil {
		return measurement{}, err
	}
	return measurement{value: takers[m.Take](shares), cells: used}, nil
}

func (l lab) faster(of, against Key) (float64, []Cell, error) {
	var quantiles [2]func(float64) float64
	_, cells, err := l.metric("p50", []Key{of, against})
	if err != nil {
		return 0, nil, err
	}
	for i, c := range cells {
		h, err := l.set.histogram(c)
		if err != nil {
			return 0, nil, err
		}
		if h == nil {
			return 0, nil, fmt.Errorf("%s has no histogram", c.Key)
		}
		quantiles[i] = func(p float64) float64 { return float64(h.ValueAtQuantile(p)) }
	}
	const steps = 200
	faster := 0
	for i := 1; i < steps; i++ {
		p := 100 * float64(i) / steps
		if quantiles[0](p) < quantiles[1](p) {
			faster++
		}
	}
	return 100 * float64(faster) / (steps - 1), cells, nil
}

// growthExponent is b in time ~ replicas^b between two sizes.
func growthExponent(fromMs, toMs float64, from, to int) float64 {
	return math.Log(toMs/fromMs) / math.Log(float64(to)/float64(from))
}
