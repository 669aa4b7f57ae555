package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heartbed/experiments"
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
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			env := experiments.ReadEnv(nil, time.Now())
			fmt.Fprintf(w, "machine\t%s\t%d cores, %s, %s\n", env.OS+"/"+env.Arch, env.Cores, orUnknown(env.CPU), env.Go)
			memory, disk := env.MemoryMB, freeMB(".")
			fmt.Fprintf(w, "memory\t%s\t%s\n", enough(memory, wantMemoryMB), amount(memory, wantMemoryMB))
			fmt.Fprintf(w, "disk\t%s\t%s\n", enough(disk, wantDiskMB), amount(disk, wantDiskMB)+" in the current folder")
			var missing []error
			for _, name := range backendNames() {
				state, note := "ok", backends[name].summary
				if err := backends[name].Check(cmd.Context()); err != nil {
					state, note = "unknown", err.Error()
					if errors.Is(err, errors.ErrUnsupported) {
						state = "missing"
					}
					missing = append(missing, fmt.Errorf("backend %s: %w", name, err))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, state, note)
			}
			return errors.Join(w.Flush(), errors.Join(missing...))
		},
	}
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
