package analysis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"heartbed/experiments"
)

// warnings is what a reader must know before any conclusion.
func warnings(set Set, cells []Cell) []string {
	var all []string
	for _, info := range set.Scenarios {
		if info.Quick {
			all = append(all, fmt.Sprintf("%s was cut down with --quick or --short: fewer repetitions and shorter runs than the published experiment.", info.Name))
		}
	}
	all = append(all, invalidWarnings(set.Results)...)
	for _, c := range cells {
		for _, w := range c.Warnings {
			all = append(all, fmt.Sprintf("%s mixes runs that are not alike: %s", c.Key, w))
		}
	}
	all = append(all, fewRunsWarning(cells)...)
	all = append(all, saturatedWarning(cells)...)
	all = append(all, tally(set.Results, "warned", func(r experiments.Result) []string { return r.Warnings })...)
	all = append(all, tally(set.Results, "had a controller step that failed", func(r experiments.Result) []string { return r.StepErrors })...)
	return append(all, set.Warnings...)
}

func invalidWarnings(results []experiments.Result) []string {
	var invalid []experiments.Result
	for _, r := range results {
		if r.Verdict == experiments.Invalid {
			invalid = append(invalid, r)
		}
	}
	if len(invalid) == 0 {
		return nil
	}
	head := fmt.Sprintf("%d of %d runs are INVALID; they are counted and left out of every figure.", len(invalid), len(results))
	return append([]string{head}, tally(invalid, "INVALID", func(r experiments.Result) []string {
		if r.Error != "" {
			return append([]string{r.Error}, r.Reasons...)
		}
		return r.Reasons
	})...)
}

// tally counts in how many runs a text occurs. The most frequent texts are
// shown; the table of runs holds all.
func tally(results []experiments.Result, what string, texts func(experiments.Result) []string) []string {
	const shown = 8
	counts := map[string]int{}
	where := map[string]string{}
	for _, r := range results {
		for _, text := range texts(r) {
			counts[text]++
			where[text] = cmp.Or(where[text], fmt.Sprintf("%s/%s/%s at %s RPS", r.Trial.Scenario, r.Trial.App, r.Trial.Policy, formatRate(r.Trial.RPS)))
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var lines []string
	for i, text := range order {
		if i == shown {
			lines = append(lines, fmt.Sprintf("%d more texts of runs that %s are in tables/runs.csv.", len(order)-shown, what))
			break
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s (first in %s)", plural(counts[text], "run"), what, text, where[text]))
	}
	return lines
}

func fewRunsWarning(cells []Cell) []string {
	few := 0
	for _, c := range cells {
		if c.N < minRuns {
			few++
		}
	}
	if few == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %s fewer than %d valid runs: they have no interval, and differences between them cannot be told from noise.",
		few, plural(len(cells), "cell")+" hold", minRuns)}
}

func saturatedWarning(cells []Cell) []string {
	var names []string
	for _, c := range cells {
		if c.Saturated > 0 {
			names = append(names, fmt.Sprintf("%s/%s/%s at %s RPS (%d of %d)", c.Scenario, c.App, c.Policy, formatRate(c.RPS), c.Saturated, c.N))
		}
	}
	if len(names) == 0 {
		return nil
	}
	const shown = 6
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if extra := len(names) - shown; extra > 0 {
		text += fmt.Sprintf(" and %d more", extra)
	}
	return []string{plural(len(names), "cell") + " with SATURATED runs, whose latency grows with the length of the run: " + text + "."}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
