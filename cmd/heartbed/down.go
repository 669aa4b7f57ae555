package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
)

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove what killed runs left on this machine, and in clusters",
		Long: `Live backends write every change to this machine, or to a cluster, into a
journal before they make it and undo it when a trial ends. After a kill or a
crash this command undoes what the journals still name: namespaces with their
processes, CPU groups, clusters and files, and what is ours in a Kubernetes
cluster. Runs that are going on are left alone.`,
		Example: "  heartbed down",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return down(cmd.Context(), cmd.OutOrStdout(), "", backendNames()...)
		},
	}
}

// down undoes what runs of the backends left behind, by the journals in a folder
// ("" = each backend's own), and says what it did.
func down(ctx context.Context, w io.Writer, journals string, names ...string) error {
	var errs []error
	found := false
	for _, name := range names {
		if backends[name].down == nil {
			continue
		}
		runs, err := backends[name].down(ctx, journals)
		if err != nil {
			errs = append(errs, fmt.Errorf("backend %s: %w", name, err))
		}
		for _, r := range runs {
			found = true
			if r.Running {
				fmt.Fprintf(w, "%s: run %s is going on and was left alone\n", name, r.Run)
				continue
			}
			fmt.Fprintf(w, "%s: run %s: %d changes undone\n", name, r.Run, r.Changes)
		}
	}
	if !found && len(errs) == 0 {
		fmt.Fprintln(w, "nothing to remove")
	}
	return errors.Join(errs...)
}
