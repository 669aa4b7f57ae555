package analysis

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Options of a report. The zero value reads and writes the same directory.
type Options struct {
	// Inputs are the directories whose results are joined; empty = the
	// directory that is written to. Directories below them are read too.
	Inputs []string
	// Baseline is the method that paired differences are taken against; empty
	// = that of the scenario, else kubeproxy or default, whichever was run.
	Baseline string
	Title    string
}

// Summary is summary.json.
type Summary struct {
	Cells      []Cell               `json:"cells"`
	Claims     []Judgement          `json:"claims"`
	Verdicts   map[ClaimVerdict]int `json:"verdicts"` // how many claims got each
	Pairs      []Pair               `json:"pairs"`
	Deviations []Deviations         `json:"deviations,omitempty"`
	Warnings   []string             `json:"warnings,omitempty"`
}

// Write reads the results and puts summary.json, tables/, figures/, report.md
// and report.html into dir. Nothing is written when the results cannot be
// read whole: that error wraps experiments.ErrInput. The same results give the
// same bytes.
func Write(dir string, o Options) (Summary, error) {
	inputs := o.Inputs
	if len(inputs) == 0 {
		inputs = []string{dir}
	}
	sets := make([]Set, len(inputs))
	for i, input := range inputs {
		set, err := Read(input)
		if err != nil {
			return Summary{}, err
		}
		sets[i] = set
	}
	return WriteSet(dir, Join(sets...), o)
}

// WriteSet is Write for results that were read before.
func WriteSet(dir string, set Set, o Options) (Summary, error) {
	summary, err := Summarize(set, o)
	if err != nil {
		return Summary{}, err
	}
	report, err := newReport(set, summary, o)
	if err != nil {
		return Summary{}, err
	}
	files := map[string][]byte{}
	data, err := json.MarshalIndent(summary, "", "  ")
	if err != nil {
		return Summary{}, fmt.Errorf("write summary: %w", err)
	}
	files["summary.json"] = append(data, '\n')
	for name, table := range tables(set, summary) {
		files["tables/"+name] = table
	}
	for _, f := range report.figures() {
		files["figures/"+f.Name+".svg"] = f.svg
	}
	if files["report.md"], err = report.markdown(); err != nil {
		return Summary{}, err
	}
	if files["report.html"], err = report.html(); err != nil {
		return Summary{}, err
	}
	return summary, writeFiles(dir, files)
}

// Summarize computes all that a report shows, without writing it.
func Summarize(set Set, o Options) (Summary, error) {
	claims, err := LoadClaims()
	if err != nil {
		return Summary{}, err
	}
	s := Summary{Cells: set.Cells(), Claims: Judge(set, claims), Verdicts: map[ClaimVerdict]int{}}
	for _, v := range ClaimVerdicts {
		s.Verdicts[v] = 0
	}
	for _, j := range s.Claims {
		s.Verdicts[j.Verdict]++
	}
	s.Pairs = Paired(s.Cells, func(scenario string) string { return baseline(set, s.Cells, scenario, o) })
	if s.Deviations, err = SideBySide(s.Cells); err != nil {
		return Summary{}, err
	}
	s.Warnings = warnings(set, s.Cells)
	return s, nil
}

func baseline(set Set, cells []Cell, scenario string, o Options) string {
	if name := cmp.Or(o.Baseline, set.scenario(scenario).Baseline); name != "" {
		return name
	}
	for _, name := range []string{"kubeproxy", "default"} {
		if slices.ContainsFunc(cells, func(c Cell) bool { return c.Scenario == scenario && c.Policy == name }) {
			return name
		}
	}
	return ""
}
