package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"heartbed/analysis"
	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
)

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Write the report of a result folder again",
		Long: `Reads the results in a folder and in the folders below it and writes
summary.json, report.html, report.md, tables and figures beside them. The same
results give the same bytes.`,
		Example: "  heartbed report out/A-sim",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(args[0], cmd.OutOrStdout())
		},
	}
}

// report writes the report of a folder and says where it is and what it found.
func report(dir string, out io.Writer) error {
	summary, err := analysis.Write(dir, analysis.Options{})
	if err != nil {
		return err
	}
	if err := writeP99(summary.Cells, out); err != nil {
		return err
	}
	for _, w := range summary.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	fmt.Fprintf(out, "%d cells, claims: %s\n", len(summary.Cells), verdictCounts(summary.Verdicts))
	_, err = fmt.Fprintf(out, "report: %s\n", filepath.Join(dir, "report.html"))
	return err
}

// writeP99 prints the median P99 of every cell, a line for each rate of an
// application and a column for each method.
func writeP99(cells []analysis.Cell, out io.Writer) error {
	type row struct {
		scenario, app, backend string
		rps                    float64
	}
	var rows []row
	var methods []string
	values := map[row]map[string]string{}
	for _, c := range cells {
		r := row{c.Scenario, c.App, c.Backend, c.RPS}
		if values[r] == nil {
			rows, values[r] = append(rows, r), map[string]string{}
		}
		if !slices.Contains(methods, c.Policy) {
			methods = append(methods, c.Policy)
		}
		if c.P99Ms != nil {
			values[r][c.Policy] = fmt.Sprintf("%.0f", c.P99Ms.Median)
		}
	}
	if len(methods) > maxColumns {
		return nil // no terminal is wide enough; the report has it
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "P99 ms\tapp\tbackend\tRPS\t%s\t\n", strings.Join(methods, "\t"))
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t", r.scenario, r.app, r.backend, r.rps)
		for _, m := range methods {
			fmt.Fprintf(w, "%s\t", cmp.Or(values[r][m], "-"))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// maxColumns is the largest number of methods printed beside each other.
const maxColumns = 9

func verdictCounts(verdicts map[analysis.ClaimVerdict]int) string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(verdicts)) {
		parts = append(parts, fmt.Sprintf("%d %s", verdicts[v], v))
	}
	return strings.Join(parts, ", ")
}

func importCommand() *cobra.Command {
	var o analysis.ImportOptions
	var out string
	cmd := &cobra.Command{
		Use:     "import",
		Short:   "Read logs of another load generator into a result folder",
		Example: "  heartbed import wrk2 logs --out out/measured",
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	wrk2 := &cobra.Command{
		Use:   "wrk2 DIR",
		Short: "Read the logs of wrk2 below a folder",
		Long: `Reads every file below DIR as output of wrk2. wrk2 does not print its rate, so
that the path must say it: the pattern may hold {policy}, {rps}, {rep} or {run},
{phase}, {app} and {scenario}, and * for any text within a name. What cannot be
read or placed is named in import.json and in the report.`,
		Example: `  heartbed import wrk2 logs --out out/measured
  heartbed import wrk2 logs --pattern '{app}/{policy}/{rps}-{rep}.txt' --out out/measured`,
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return importWrk2(args[0], out, o, cmd.OutOrStdout())
		},
	}
	flags := wrk2.Flags()
	flags.StringVar(&out, "out", "", "result folder to write (required)")
	flags.StringVar(&o.Pattern, "pattern", analysis.DefaultWrk2Pattern, "where policy, rate and repetition stand in a path")
	flags.StringVar(&o.Scenario, "scenario", "", "scenario of paths that name none (default imported)")
	flags.StringVar(&o.App, "app", "", "application of paths that name none (default app)")
	flags.StringToStringVar(&o.Methods, "rename", nil, "what the paths call a policy = what the results call it")
	cmd.AddCommand(wrk2)
	return cmd
}

func importWrk2(dir, out string, o analysis.ImportOptions, stdout io.Writer) error {
	if out == "" {
		return fmt.Errorf("%w: give the result folder with --out", cli.ErrUsage)
	}
	if _, err := os.Stat(filepath.Join(out, "results.jsonl")); err == nil {
		return experiments.Faults{{Field: "out", Problem: fmt.Sprintf("found results in %s already, expected a new folder", out)}}
	}
	im, err := analysis.ImportWrk2(dir, o)
	if err != nil {
		return err
	}
	if err := im.Write(out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d runs from %d files, %d problems\n", im.Log.Runs, im.Log.Files, len(im.Log.Problems))
	return report(out, stdout)
}
