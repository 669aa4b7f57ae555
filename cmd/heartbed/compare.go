package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heartbed/analysis"
)

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compare DIR DIR",
		Short: "Set the P99 of two result folders side by side",
		Long: `Prints for every cell of two result folders the median P99 of each with its
interval and the change. Where the intervals overlap or there are too few runs
for one, the change is marked with ~: the two cannot be told apart. A scenario
or backend of which each folder holds only one need not have the same name.`,
		Example: "  heartbed compare out/A-sim out/A-other",
		Args:    usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := analysis.Read(args[0])
			if err != nil {
				return err
			}
			b, err := analysis.Read(args[1])
			if err != nil {
				return err
			}
			return compare(a.Cells(), b.Cells(), args, cmd.OutOrStdout())
		},
	}
}

// compare prints the cells of two folders in the order of the first.
func compare(a, b []analysis.Cell, dirs []string, out io.Writer) error {
	same := sameness(a, b)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "P99, ms\t%s\t%s\tchange\n", dirs[0], dirs[1])
	matched := map[analysis.Key]bool{}
	for _, cell := range a {
		other := analysis.Cell{}
		if i := slices.IndexFunc(b, func(c analysis.Cell) bool { return same(c.Key) == same(cell.Key) }); i >= 0 {
			other = b[i]
			matched[other.Key] = true
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", label(cell.Key), p99(cell), p99(other), change(cell, other))
	}
	for _, cell := range b {
		if !matched[cell.Key] {
			fmt.Fprintf(w, "%s\t-\t%s\t\n", label(cell.Key), p99(cell))
		}
	}
	return w.Flush()
}

// sameness gives the part of a key that must agree for two cells to be
// compared.
func sameness(a, b []analysis.Cell) func(analysis.Key) analysis.Key {
	several := func(cells []analysis.Cell, of func(analysis.Key) string) bool {
		return slices.ContainsFunc(cells, func(c analysis.Cell) bool { return of(c.Key) != of(cells[0].Key) })
	}
	scenario := func(k analysis.Key) string { return k.Scenario }
	backend := func(k analysis.Key) string { return k.Backend }
	byScenario := several(a, scenario) || several(b, scenario)
	byBackend := several(a, backend) || several(b, backend)
	return func(k analysis.Key) analysis.Key {
		if !byScenario {
			k.Scenario = ""
		}
		if !byBackend {
			k.Backend = ""
		}
		return k
	}
}

func label(k analysis.Key) string {
	return fmt.Sprintf("%s %s %s %s RPS", k.Scenario, k.App, k.Policy, strconv.FormatFloat(k.RPS, 'f', -1, 64))
}

// p99 shows a median with its interval, or - where nothing was measured.
func p99(c analysis.Cell) string {
	switch e := c.P99Ms; {
	case e == nil:
		return "-"
	case e.Lo == nil:
		return fmt.Sprintf("%.1f (%d runs, ?)", e.Median, e.N)
	default:
		return fmt.Sprintf("%.1f [%.1f..%.1f]", e.Median, *e.Lo, *e.Hi)
	}
}

// change of the median from a to b.
func change(a, b analysis.Cell) string {
	if a.P99Ms == nil || b.P99Ms == nil || a.P99Ms.Median == 0 {
		return ""
	}
	text := fmt.Sprintf("%+.1f %%", 100*(b.P99Ms.Median/a.P99Ms.Median-1))
	x, y := a.P99Ms, b.P99Ms
	if x.Lo == nil || y.Lo == nil || (*x.Lo <= *y.Hi && *y.Lo <= *x.Hi) {
		return "~ " + text
	}
	return text
}
