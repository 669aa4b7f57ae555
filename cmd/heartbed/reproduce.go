package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
)

// Sizes of the published scheduling-time experiment: replicas of all
// components together.
var publishedSizes = []int{100, 200, 400}

func reproduceCommand() *cobra.Command {
	var out string
	var quick bool
	cmd := &cobra.Command{
		Use:   "reproduce",
		Short: "Run everything the papers report and judge every published figure",
		Long: `Runs all scenarios, the scheduling-time measurement and the worked examples into
folders below --out and writes one report with a verdict on every published
figure. It goes on where an earlier run was interrupted.`,
		Example: "  heartbed reproduce --out out/reproduce\n  heartbed reproduce --out out/look --quick",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return reproduce(cmd, out, quick)
		},
	}
	cmd.Flags().StringVar(&out, "out", filepath.Join("out", "reproduce"), "result folder")
	cmd.Flags().BoolVar(&quick, "quick", false, "at most 2 repetitions and a quarter of the measured time, for a first look")
	return cmd
}

// published lists the scenarios behind the papers' figures: the experiments
// first, then what takes HEART apart or motivates the papers.
func published() []string {
	var main, parts []string
	for _, name := range experiments.Names() {
		if strings.HasPrefix(name, "spike-") {
			continue // variants of ours, of which nothing is published
		}
		if strings.HasPrefix(name, "ablation-") || strings.HasPrefix(name, "motivation-") {
			parts = append(parts, name)
		} else {
			main = append(main, name)
		}
	}
	return append(main, parts...)
}

func reproduce(cmd *cobra.Command, out string, quick bool) error {
	stderr := cmd.ErrOrStderr()
	var jobs []job
	for _, name := range published() {
		f := runFlags{scenario: name, backend: simulator, out: filepath.Join(out, name), quick: quick}
		j, err := f.job(cmd, simulator)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	var failed []error
	for i, j := range jobs {
		fmt.Fprintf(stderr, "%s (%d of %d)\n", j.experiment.Scenario.Name, i+1, len(jobs))
		complete, err := j.measure(cmd.Context(), stderr)
		if !complete {
			return err
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", j.experiment.Scenario.Name, err))
		}
	}
	if err := measureAside(cmd, out); err != nil {
		return err
	}
	return errors.Join(report(out, cmd.OutOrStdout()), errors.Join(failed...))
}

// measureAside writes what is no trial: scheduling times and worked examples.
func measureAside(cmd *cobra.Command, out string) error {
	fmt.Fprintln(cmd.ErrOrStderr(), "scheduling time and worked examples")
	scale, err := experiments.Scale(cmd.Context(), experiments.ScaleOptions{Policies: []string{"heart", "lata"}, Replicas: publishedSizes, Seed: 1}, time.Now)
	if err != nil {
		return err
	}
	examples, err := experiments.WorkedExamples()
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(filepath.Join(out, "scale.json"), scale), writeJSON(filepath.Join(out, "vectors.json"), examples))
}

func writeJSON(path string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
