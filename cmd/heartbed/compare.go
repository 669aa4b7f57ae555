package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"heartbed/analysis"
	"heartbed/cmd/internal/cli"
)

func compareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compare DIR DIR",
		Short: "Set the P99 of two result folders side by side",
		Long: `Prints for every cell of two result folders the median P99 of each and their
ratio, marked with ~ where the two cannot be told apart. A scenario or backend
of which each folder holds only one need not have the same name.`,
		Example: "  heartbed compare out/A-sim out/A-other",
		Args:    cli.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := analysis.Compare(args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), c.Text())
			return err
		},
	}
}
