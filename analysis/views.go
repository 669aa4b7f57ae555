package analysis

import (
	"fmt"
	"slices"
)

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
