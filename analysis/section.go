package analysis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// section is one scenario and application on one backend.
type section struct {
	Scenario, Title, App, Backend string
	Source                        Source
	Baseline                      string
	Focus                         float64 // rate of the figures that show one
	FocusText                     string
	Rates                         []string
	Rows                          []policyRow
	Details                       []detailRow  // at the focus rate
	Scaling                       []scalingRow // at the focus rate; empty = the replicas stayed
	Figures                       []figure
	MoreShares                    []figure // shares over time of all methods but one
	Claims                        []claimView

	cells    []Cell
	rates    []float64
	policies []string
	titles   map[string]methodTitle
}

// policyRow is a policy's P99 at each rate.
type policyRow struct {
	Policy, Colour string
	Title          string // what the scenario calls it
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
		sec.Figures, sec.MoreShares = foldShares(figures)
		r.Sections = append(r.Sections, sec)
		start = end
	}
	return nil
}

// foldShares takes out the shares over time of all methods but HEART, or the
// last where it is not there: they look much alike.
func foldShares(figures []figure) (shown, folded []figure) {
	kept := -1
	for i, f := range figures {
		if f.shares != "" && (kept < 0 || figures[kept].shares != "heart") {
			kept = i
		}
	}
	for i, f := range figures {
		if f.shares != "" && i != kept {
			folded = append(folded, f)
		} else {
			shown = append(shown, f)
		}
	}
	return shown, folded
}

func sameSection(a, b Cell) bool {
	return a.Scenario == b.Scenario && a.App == b.App && a.Backend == b.Backend
}

func newSection(set Set, all, cells []Cell, o Options) section {
	first := cells[0]
	info := set.scenario(first.Scenario)
	s := section{
		Scenario: first.Scenario, App: first.App, Backend: first.Backend, Source: first.Source,
		Title: info.Title, Baseline: baseline(set, all, first.Scenario, o), cells: slices.Clone(cells), titles: info.Methods,
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
	order := func(a, b string) int {
		rank := func(name string) int {
			if i := slices.Index(info.Compare, name); i >= 0 {
				return i
			}
			return len(info.Compare)
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), comparePolicies(a, b))
	}
	slices.SortFunc(s.policies, order)
	slices.SortStableFunc(s.cells, func(a, b Cell) int { return cmp.Or(cmp.Compare(a.RPS, b.RPS), order(a.Policy, b.Policy)) })
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
		row := policyRow{Policy: policy, Colour: colours.css(policy), Title: s.titles[policy].Title}
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
		if c.Scaling != nil {
			s.Scaling = append(s.Scaling, newScalingRow(c, s.titles[c.Policy].Title, colours))
		}
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

// headline is a section in a line: who is lowest, by how much, and whether
// the runs can tell.
type headline struct{ Where, Text string }

func headlines(sections []section) []headline {
	var lines []headline
	for _, s := range sections {
		at := s.at(s.Focus)
		best := bestOf(at)
		if best == nil || len(at) < 2 {
			continue
		}
		h := headline{
			Where: fmt.Sprintf("%s, %s, %s RPS, %s", s.Scenario, s.App, formatRate(s.Focus), s.Source),
			Text:  fmt.Sprintf("%s has the lowest P99, %s ms", best.Policy, formatMs(best.P99Ms.Median)),
		}
		next := ""
		others := slices.DeleteFunc(slices.Clone(at), func(c Cell) bool { return c.Policy == best.Policy })
		if second := bestOf(others); second != nil {
			next = second.Policy
			h.Text += fmt.Sprintf("; next %s, %s", second.Policy, formatMs(second.P99Ms.Median))
			if ratio := pairedRatio(*second, *best); ratio == nil || !excludesOne(*ratio) {
				h.Text += " (not distinguishable)"
			}
		}
		i := slices.IndexFunc(others, func(c Cell) bool { return c.Policy == s.Baseline && c.P99Ms != nil })
		if i >= 0 && s.Baseline != next {
			h.Text += fmt.Sprintf("; baseline %s, %s", s.Baseline, formatMs(others[i].P99Ms.Median))
		}
		lines = append(lines, h)
	}
	return lines
}
