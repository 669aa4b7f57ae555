package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
)

func allocateCommand() *cobra.Command {
	var name string
	var pairs []string
	cmd := &cobra.Command{
		Use:   "allocate FILE.yaml",
		Short: "Step a policy over recorded windows and print its table",
		Long: `Steps a policy over the windows recorded in a file and prints, as JSON, the last
routing table, the trace of the policy's stages and what they took.`,
		Example: `  heartbed allocate --policy heart windows.yaml
  heartbed allocate --policy heart --param filter=off windows.yaml`,
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			params, err := parseParams(pairs)
			if err != nil {
				return err
			}
			a, err := experiments.Allocate(args[0], name, params, time.Now)
			if err != nil {
				return err
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(a)
		},
	}
	cmd.Flags().StringVar(&name, "policy", "heart", "policy, see 'heartbed policies'")
	cmd.Flags().StringArrayVar(&pairs, "param", nil, "parameter of the policy as key=value; may be given again")
	return cmd
}

// parseParams reads key=value pairs.
func parseParams(pairs []string) (map[string]string, error) {
	params := map[string]string{}
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("%w: --param is %q, expected key=value", cli.ErrUsage, pair)
		}
		if _, twice := params[key]; twice {
			return nil, fmt.Errorf("%w: --param %s is given twice", cli.ErrUsage, key)
		}
		params[key] = value
	}
	return params, nil
}

func scaleCommand() *cobra.Command {
	var o experiments.ScaleOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure the scheduling time of policies",
		Long: `Measures what a policy takes to decide, without collecting metrics and without
applying the table, at rising numbers of replicas, and how it grows with them.`,
		Example: "  heartbed scale --policy heart,lata --replicas 100,200,400",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := experiments.Scale(cmd.Context(), o, time.Now)
			if err != nil {
				return err
			}
			if !asJSON {
				return r.WriteText(cmd.OutOrStdout())
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(r)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Policies, "policy", []string{"heart", "lata"}, "policies to measure")
	flags.IntSliceVar(&o.Replicas, "replicas", []int{100, 200, 400}, "replicas of all components together")
	flags.IntVar(&o.Nodes, "nodes", 5, "nodes")
	flags.IntVar(&o.Components, "components", 5, "components, each calling the next")
	flags.IntVar(&o.Steps, "steps", 100, "steps that are measured at each size")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of round-trip times and loads")
	flags.BoolVar(&asJSON, "json", false, "print JSON as in scale.json, which a report reads")
	return cmd
}
