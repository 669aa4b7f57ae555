package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
	"heartbed/testbed/cluster"
	"heartbed/testbed/kind"
	"heartbed/testbed/netns"
)

// What a comfortable run of the shipped scenarios takes.
const (
	wantMemoryMB = 1024
	wantDiskMB   = 512
)

func doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "Say what each backend needs and lacks on this machine",
		Example: "  heartbed doctor",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			env := experiments.ReadEnv(nil, time.Now())
			fmt.Fprintf(w, "machine\t%s\t%d cores, %s, %s\n", env.OS+"/"+env.Arch, env.Cores, orUnknown(env.CPU), env.Go)
			memory, disk := env.MemoryMB, freeMB(".")
			fmt.Fprintf(w, "memory\t%s\t%s\n", enough(memory, wantMemoryMB), amount(memory, wantMemoryMB))
			fmt.Fprintf(w, "disk\t%s\t%s\n", enough(disk, wantDiskMB), amount(disk, wantDiskMB)+" in the current folder")
			for _, f := range slices.Concat(netns.Facts(cmd.Context()), kind.Facts(), cluster.Facts()) {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.Name, f.State, f.Note)
			}
			note, err := scaleProposal(env.Cores)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "scale\tinfo\t%s\n", note)
			unknown := checkBackends(cmd.Context(), w)
			return errors.Join(w.Flush(), unknown)
		},
	}
}

// checkLimit bounds the check of a backend: a daemon that hangs does not answer.
const checkLimit = time.Minute

// checkBackends prints a line for each backend. One that this machine cannot
// run is no failure of the doctor, one of which it could not be told is.
func checkBackends(ctx context.Context, w io.Writer) error {
	var unknown []error
	for _, name := range backendNames() {
		state, note := "ok", backends[name].summary
		within, cancel := context.WithTimeout(ctx, checkLimit)
		err := backends[name].Check(within)
		cancel()
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			state, note = "missing", err.Error()
		case err != nil:
			state, note = "unknown", err.Error()
			unknown = append(unknown, fmt.Errorf("backend %s: %w", name, err))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, state, strings.ReplaceAll(note, "\n", "; "))
	}
	return errors.Join(unknown...)
}

// scaleProposal says by how much to divide CPU and load so that all replicas
// of an app can be busy at the same time on this machine.
func scaleProposal(cores int) (string, error) {
	const scenario = "LAN"
	s, err := experiments.Load(scenario)
	if err != nil {
		return "", err
	}
	e, err := s.Experiment(experiments.Selection{Repetitions: 1}, "netns")
	if err != nil {
		return "", err
	}
	var parts []string
	seen := map[string]bool{}
	for _, t := range e.Trials {
		if seen[t.App] {
			continue
		}
		seen[t.App] = true
		wanted := float64(len(t.Plan.Replicas)) * t.Plan.App.Server.Threads
		parts = append(parts, fmt.Sprintf("--scale %.0f for %s", math.Max(1, math.Ceil(wanted/float64(cores))), t.App))
	}
	return fmt.Sprintf("with all replicas busy at once, %d cores bear %s of %s", cores, strings.Join(parts, ", "), scenario), nil
}

func orUnknown(s string) string {
	if s == "" {
		return "CPU model unknown"
	}
	return s
}

// enough compares what was found with what is wanted; 0 = could not be told.
func enough(found, want int) string {
	switch {
	case found == 0:
		return "unknown"
	case found < want:
		return "low"
	}
	return "ok"
}

func amount(found, want int) string {
	if found == 0 {
		return fmt.Sprintf("could not be read, %d MB wanted", want)
	}
	return fmt.Sprintf("%d MB, %d MB wanted", found, want)
}
