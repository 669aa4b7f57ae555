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
	Headlines  []headline
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

type scaleView struct {
	Figure *figure
	Rows   []scaleRow
}

type scaleRow struct{ Policy, Replicas, Nodes, Components, Steps, Ms string }

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
			view.Rows = append(view.Rows, scaleRow{policy, formatCount(float64(p.Replicas)), fmt.Sprint(p.Nodes), fmt.Sprint(p.Components), fmt.Sprint(p.Steps), formatMs(p.Ms)})
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
		all = append(all, s.MoreShares...)
	}
	if r.ClaimsPlot != nil {
		all = append(all, *r.ClaimsPlot)
	}
	if r.Scale != nil && r.Scale.Figure != nil {
		all = append(all, *r.Scale.Figure)
	}
	return all
}
