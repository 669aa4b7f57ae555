package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"heartbed/experiments"
)

// report is what report.md and report.html show, in their order: warnings
// before conclusions.
type report struct {
	Title      string
	Sources    []Source
	Facts      []fact
	Warnings   []string
	Headlines  []string
	Counts     []verdictCount
	Papers     []paperClaims
	ClaimsPlot *figure
	Sections   []section
	Deviations []deviationView
	Scale      *scaleView
	Provenance []provenanceView
	Env        []fact
}

type fact struct{ Name, Value string }

type verdictCount struct {
	Verdict ClaimVerdict
	N       int
	Percent float64
}

// paperClaims splits a paper's claims: what was judged comes first, what could
// not be is folded away.
type paperClaims struct {
	Paper         string
	Judged        []claimView
	NotComparable []claimView
}

// claimView is a judgement as text.
type claimView struct {
	Judgement
	PublishedText, MeasuredText string
}

// section is one scenario and application on one backend.
type section struct {
	Scenario, Title, App, Backend string
	Source                        Source
	Baseline                      string
	Focus                         float64 // rate of the figures that show one
	FocusText                     string
	Rates                         []string
	Rows                          []policyRow
	Details                       []detailRow // at the focus rate
	Figures                       []figure
	Claims                        []claimView

	cells    []Cell
	rates    []float64
	policies []string
}

// policyRow is a policy's P99 at each rate.
type policyRow struct {
	Policy, Colour string
	Cells          []cellView
}

// cellView is a cell of the P99 table; empty when it was not run.
type cellView struct {
	P99, Interval, Ratio string
	Saturated, Best      bool
}

// detailRow is a policy at the focus rate.
type detailRow struct {
	Policy, Colour                         string
	N, Mean, P50, P90, P99, P999, Noise    string
	CPUGap, CPUGapWindow, Errors, Verdicts string
}

type deviationView struct {
	Deviations
	Metrics []string
	Rows    []deviationRow
}

type deviationRow struct {
	Policy, RPS string
	Values      []deviationValue
}

type deviationValue struct {
	Measured, Simulated, Pct string
	Class                    string // near, fair or far
}

type scaleView struct {
	Figure *figure
	Rows   []scaleRow
}

type scaleRow struct{ Policy, Replicas, Nodes, Components, Runs, Ms string }

type provenanceView struct {
	Scenario string
	Lists    []provenanceList
}

type provenanceList struct {
	Name  string
	Items []string
}

func newReport(set Set, s Summary, o Options) (report, error) {
	r := report{Warnings: s.Warnings}
	for _, c := range s.Cells {
		if !slices.Contains(r.Sources, c.Source) {
			r.Sources = append(r.Sources, c.Source)
		}
	}
	slices.Sort(r.Sources)
	colours := newPalette(s.Cells, set.Scale)
	views := claimViews(s.Claims)
	r.countVerdicts(s)
	r.Papers = byPaper(views)
	if err := r.addSections(set, s, colours, views, o); err != nil {
		return report{}, err
	}
	r.Title = cmp.Or(o.Title, r.defaultTitle())
	for _, d := range s.Deviations {
		r.Deviations = append(r.Deviations, newDeviationView(d))
	}
	if err := r.addScale(set.Scale, colours); err != nil {
		return report{}, err
	}
	svg, err := claimsFigure(s.Claims)
	if err != nil {
		return report{}, err
	}
	if svg != nil {
		r.ClaimsPlot = &figure{Name: "claims-latency", Title: "Published latencies and those here", Caption: "Ring: published. Dot: here. Colour: verdict", svg: svg}
	}
	r.Headlines = headlines(r.Sections)
	r.addProvenance(set)
	r.Facts = facts(set, s)
	return r, nil
}

func (r report) defaultTitle() string {
	var names []string
	for _, s := range r.Sections {
		if !slices.Contains(names, s.Scenario) {
			names = append(names, s.Scenario)
		}
	}
	switch {
	case len(names) == 0:
		return "Heartbed: scheduling time"
	case len(names) > 3:
		return fmt.Sprintf("Heartbed: %d scenarios", len(names))
	}
	return "Heartbed: " + strings.Join(names, ", ")
}

func (r *report) countVerdicts(s Summary) {
	for _, v := range ClaimVerdicts {
		n := s.Verdicts[v]
		r.Counts = append(r.Counts, verdictCount{v, n, 100 * float64(n) / float64(max(1, len(s.Claims)))})
	}
}

func claimViews(judgements []Judgement) []claimView {
	views := make([]claimView, len(judgements))
	for i, j := range judgements {
		views[i] = claimView{j, formatValue(j.Published, j.Unit), "-"}
		if j.Measured != nil {
			views[i].MeasuredText = formatValue(*j.Measured, j.Unit)
		}
	}
	return views
}

func byPaper(views []claimView) []paperClaims {
	var papers []paperClaims
	for _, v := range views {
		i := slices.IndexFunc(papers, func(p paperClaims) bool { return p.Paper == v.Paper })
		if i < 0 {
			i = len(papers)
			papers = append(papers, paperClaims{Paper: v.Paper})
		}
		if v.Verdict == NotComparable {
			papers[i].NotComparable = append(papers[i].NotComparable, v)
		} else {
			papers[i].Judged = append(papers[i].Judged, v)
		}
	}
	return papers
}

func (r *report) addSections(set Set, s Summary, colours palette, views []claimView, o Options) error {
	for start := 0; start < len(s.Cells); {
		end := start + 1
		for end < len(s.Cells) && sameSection(s.Cells[start], s.Cells[end]) {
			end++
		}
		sec := newSection(set, s.Cells, s.Cells[start:end], o)
		sec.fillRows(s.Pairs, colours)
		for _, v := range views {
			if v.Verdict != NotComparable && slices.Contains(v.scenarios, sec.Scenario) && slices.Contains(v.apps, sec.App) && v.Source == sec.Source {
				sec.Claims = append(sec.Claims, v)
			}
		}
		figures, err := sectionFigures(set, sec, colours)
		if err != nil {
			return err
		}
		sec.Figures = figures
		r.Sections = append(r.Sections, sec)
		start = end
	}
	return nil
}

func sameSection(a, b Cell) bool {
	return a.Scenario == b.Scenario && a.App == b.App && a.Backend == b.Backend
}

func newSection(set Set, all, cells []Cell, o Options) section {
	first := cells[0]
	s := section{
		Scenario: first.Scenario, App: first.App, Backend: first.Backend, Source: first.Source,
		Title: set.scenario(first.Scenario).Title, Baseline: baseline(set, all, first.Scenario, o), cells: cells,
	}
	for _, c := range cells {
		if !slices.Contains(s.rates, c.RPS) {
			s.rates = append(s.rates, c.RPS)
			s.Rates = append(s.Rates, formatRate(c.RPS))
		}
		if !slices.Contains(s.policies, c.Policy) {
			s.policies = append(s.policies, c.Policy)
		}
	}
	slices.SortFunc(s.policies, comparePolicies)
	s.Focus = s.focusRate()
	s.FocusText = formatRate(s.Focus)
	return s
}

// focusRate is the rate of the figures that show one: the highest at which the
// policy with the lowest P99 is not saturated, for beyond it nothing is left
// to compare.
func (s section) focusRate() float64 {
	focus := s.rates[0]
	for _, rate := range s.rates {
		if best := bestOf(s.at(rate)); best != nil && best.Saturated == 0 {
			focus = rate
		}
	}
	return focus
}

func (s section) at(rate float64) []Cell {
	var cells []Cell
	for _, c := range s.cells {
		if c.RPS == rate {
			cells = append(cells, c)
		}
	}
	return cells
}

func bestOf(cells []Cell) *Cell {
	var best *Cell
	for i, c := range cells {
		if c.P99Ms != nil && (best == nil || c.P99Ms.Median < best.P99Ms.Median) {
			best = &cells[i]
		}
	}
	return best
}

func (s *section) fillRows(pairs []Pair, colours palette) {
	ratios := map[Key]Pair{}
	for _, p := range pairs {
		ratios[p.Key] = p
	}
	for _, policy := range s.policies {
		row := policyRow{Policy: policy, Colour: colours.css(policy)}
		for _, rate := range s.rates {
			at := s.at(rate)
			var view cellView
			for _, c := range at {
				if c.Policy == policy {
					view = newCellView(c, bestOf(at), ratios)
				}
			}
			row.Cells = append(row.Cells, view)
		}
		s.Rows = append(s.Rows, row)
	}
	for _, c := range s.at(s.Focus) {
		s.Details = append(s.Details, newDetailRow(c, colours))
	}
}

func newCellView(c Cell, best *Cell, ratios map[Key]Pair) cellView {
	if c.P99Ms == nil {
		return cellView{P99: "-", Interval: fmt.Sprintf("%d invalid", c.Invalid)}
	}
	v := cellView{P99: formatMs(c.P99Ms.Median), Interval: c.P99Ms.interval(), Saturated: c.Saturated > 0, Best: best != nil && best.Key == c.Key}
	if p, ok := ratios[c.Key]; ok && p.P99Ratio != nil {
		v.Ratio = formatRatio(p.P99Ratio.Median)
		if !p.Distinguishable {
			v.Ratio += " ~"
		}
	}
	return v
}

func newDetailRow(c Cell, colours palette) detailRow {
	ms := func(e *Estimate) string {
		if e == nil {
			return "-"
		}
		return formatMs(e.Median)
	}
	points := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return trimZero(*v)
	}
	d := detailRow{
		Policy: c.Policy, Colour: colours.css(c.Policy), N: fmt.Sprint(c.N), Mean: "-", P50: ms(c.P50Ms), P90: ms(c.P90Ms), P99: ms(c.P99Ms), P999: ms(c.P999Ms),
		Noise: "-", CPUGap: points(c.CPUGapPp), CPUGapWindow: points(c.CPUGapWindowPp), Errors: formatCount(float64(c.Errors)),
	}
	if c.MeanMs != nil {
		d.Mean = formatMs(*c.MeanMs)
	}
	if c.P99Ms != nil && c.P99Ms.N > 1 {
		d.Noise = fmt.Sprintf("± %.0f %%", c.P99Ms.spread())
	}
	if c.Saturated > 0 {
		d.Verdicts = fmt.Sprintf("%d saturated", c.Saturated)
	}
	if c.Invalid > 0 {
		d.Verdicts = strings.TrimPrefix(d.Verdicts+fmt.Sprintf(", %d invalid", c.Invalid), ", ")
	}
	return d
}

// headlines are one sentence a section: who is lowest, by how much, and
// whether the runs can tell.
func headlines(sections []section) []string {
	var lines []string
	for _, s := range sections {
		at := s.at(s.Focus)
		best := bestOf(at)
		if best == nil || len(at) < 2 {
			continue
		}
		text := fmt.Sprintf("%s, %s at %s RPS (%s): %s has the lowest P99, %s ms", s.Scenario, s.App, formatRate(s.Focus), s.Source, best.Policy, formatMs(best.P99Ms.Median))
		if second := bestOf(slices.DeleteFunc(slices.Clone(at), func(c Cell) bool { return c.Policy == best.Policy })); second != nil {
			ratio := pairedRatio(*second, *best)
			text += fmt.Sprintf("; next is %s with %s ms", second.Policy, formatMs(second.P99Ms.Median))
			if ratio == nil || !excludesOne(*ratio) {
				text += ", not distinguishable"
			}
		}
		i := slices.IndexFunc(at, func(c Cell) bool { return c.Policy == s.Baseline })
		if i >= 0 && at[i].P99Ms != nil && at[i].Policy != best.Policy {
			text += fmt.Sprintf("; the baseline %s has %s ms", s.Baseline, formatMs(at[i].P99Ms.Median))
		}
		lines = append(lines, text+".")
	}
	return lines
}

func newDeviationView(d Deviations) deviationView {
	v := deviationView{Deviations: d, Metrics: sideMetrics}
	for _, c := range d.Cells {
		row := deviationRow{Policy: c.Policy, RPS: formatRate(c.RPS)}
		for _, name := range sideMetrics {
			i := slices.IndexFunc(c.Values, func(v SideValue) bool { return v.Metric == name })
			if i < 0 {
				row.Values = append(row.Values, deviationValue{"-", "-", "", ""})
				continue
			}
			val := c.Values[i]
			class := "far"
			switch abs := max(val.Pct, -val.Pct); {
			case abs <= 10:
				class = "near"
			case abs <= 20:
				class = "fair"
			}
			row.Values = append(row.Values, deviationValue{formatMs(val.Measured), formatMs(val.Simulated), fmt.Sprintf("%+.0f %%", val.Pct), class})
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

func (r *report) addScale(points []ScalePoint, colours palette) error {
	if len(points) == 0 {
		return nil
	}
	view := &scaleView{}
	svg, err := scaleFigure(points, colours)
	if err != nil {
		return err
	}
	if svg != nil {
		view.Figure = &figure{Name: "scheduling-time", Title: "Scheduling time", Caption: "One step of a policy without metrics and without applying the table, median, on the machine that ran this", svg: svg}
	}
	for _, policy := range scalePolicies(points) {
		for _, p := range scaleOf(points, policy) {
			view.Rows = append(view.Rows, scaleRow{policy, formatCount(float64(p.Replicas)), fmt.Sprint(p.Nodes), fmt.Sprint(p.Components), fmt.Sprint(p.Runs), formatMs(1000 * p.Seconds)})
		}
	}
	r.Scale = view
	return nil
}

func (r *report) addProvenance(set Set) {
	for _, info := range set.Scenarios {
		p := provenanceView{Scenario: info.Name}
		for _, l := range []provenanceList{
			{"Fitted to published or measured values", info.Provenance.FittedOn},
			{"Chosen by hand after looking at results", info.Provenance.ChosenByHand},
			{"Read in a public source", info.Provenance.Evidence},
			{"Assumed", info.Provenance.Assumed},
		} {
			if len(l.Items) > 0 {
				p.Lists = append(p.Lists, l)
			}
		}
		if len(p.Lists) > 0 {
			r.Provenance = append(r.Provenance, p)
		}
	}
	for _, name := range []string{"commit", "dirty", "started", "go", "os", "kernel", "cpu", "cores", "memoryMB", "cgroup"} {
		if v, ok := set.Env[name]; ok {
			r.Env = append(r.Env, fact{name, fmt.Sprint(v)})
		}
	}
}

func facts(set Set, s Summary) []fact {
	counts := map[experiments.Verdict]int{}
	for _, r := range set.Results {
		counts[r.Verdict]++
	}
	runs := fmt.Sprintf("%d", len(set.Results))
	if n := counts[experiments.Invalid]; n > 0 {
		runs += fmt.Sprintf(", %d invalid", n)
	}
	if n := counts[experiments.Saturated]; n > 0 {
		runs += fmt.Sprintf(", %d saturated", n)
	}
	return []fact{{"Runs", runs}, {"Cells", fmt.Sprint(len(s.Cells))}}
}

// figures lists all figures of the report.
func (r report) figures() []figure {
	var all []figure
	for _, s := range r.Sections {
		all = append(all, s.Figures...)
	}
	if r.ClaimsPlot != nil {
		all = append(all, *r.ClaimsPlot)
	}
	if r.Scale != nil && r.Scale.Figure != nil {
		all = append(all, *r.Scale.Figure)
	}
	return all
}
