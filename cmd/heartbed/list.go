package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
	"heartbed/heart/policy"
)

func scenariosCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "scenarios",
		Short:   "List the scenarios or show one",
		Example: "  heartbed scenarios list\n  heartbed scenarios show A > mine.yaml",
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "list",
		Short:   "List the scenarios",
		Example: "  heartbed scenarios list",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, name := range experiments.Names() {
				s, err := experiments.Load(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\n", name, s.Title)
			}
			return w.Flush()
		},
	}, &cobra.Command{
		Use:     "show SCENARIO",
		Short:   "Print a scenario with all it extends, in the format of --file",
		Example: "  heartbed scenarios show A\n  heartbed scenarios show mine.yaml",
		Args:    cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := experiments.Load(args[0])
			if err != nil {
				return err
			}
			text, err := s.Marshal()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	})
	return cmd
}

func policiesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "policies",
		Short:   "List the policies with their parameters",
		Example: "  heartbed policies",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, name := range policy.Names() {
				spec, _ := policy.Lookup(name)
				fmt.Fprintf(w, "%s\t\t%s\n", name, spec.Summary)
				for _, p := range spec.Params {
					fmt.Fprintf(w, "  %s\t%s\t%s\n", p.Name, p.Default, p.Help)
				}
			}
			return w.Flush()
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  heartbed version",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := experiments.ReadEnv(nil, time.Now())
			commit := env.Commit
			if commit == "" {
				commit = "unknown"
			}
			if env.Dirty {
				commit += " with changes"
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "heartbed commit %s, result version %d, %s %s/%s\n", commit, experiments.ResultVersion, env.Go, env.OS, env.Arch)
			return err
		},
	}
}
