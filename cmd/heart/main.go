// Heart is the controller for a cluster of one's own: it observes through
// Prometheus, lets a policy decide and puts its routing table into force
// through Istio or over xDS.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"heartbed/cmd/internal/cli"
)

func main() {
	// what the libraries of Kubernetes log is JSON like our own
	klog.SetSlogLogger(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	cli.Main(Run)
}

// Run executes one command line and gives its exit code. Data goes to stdout,
// logs (JSON) and errors to stderr.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, rootCommand(), args, stdout, stderr)
}

// flags are those of all commands.
type flags struct {
	config, kubeconfig    string
	once, dryRun, explain bool
}

func rootCommand() *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "heart --config FILE",
		Short: "Route a cluster's requests by a policy",
		Long: `Heart observes the components of one namespace through Prometheus, lets a
policy decide which share of each caller's requests goes where, and writes
that as Istio's objects or serves it over xDS. After any error the routing
table that is in force stays.

Exit codes: 0 done, 1 something failed, 2 bad input, 130 interrupted.`,
		Example: "  heart --config heart.yaml --once --dry-run --explain\n  heart reset --config heart.yaml",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.open(cmd)
			if err != nil {
				return err
			}
			return c.run(cmd.Context())
		},
	}
	root.PersistentFlags().StringVar(&f.config, "config", "", "what to route and how, a YAML file")
	root.PersistentFlags().StringVar(&f.kubeconfig, "kubeconfig", "", "how to reach the cluster (default: that of the pod heart runs in, else the user's own)")
	root.Flags().BoolVar(&f.once, "once", false, "make one step and end")
	root.Flags().BoolVar(&f.dryRun, "dry-run", false, "print what would change, and change nothing")
	root.Flags().BoolVar(&f.explain, "explain", false, "print why each share is what it is and why each link is unused")
	root.AddCommand(&cobra.Command{
		Use:   "reset --config FILE",
		Short: "Remove every object and label that heart has written in the namespace",
		Args:  cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.open(cmd)
			if err != nil {
				return err
			}
			return c.reset(cmd.Context())
		},
	})
	return root
}

// open reads the config and makes the clients.
func (f flags) open(cmd *cobra.Command) (*controller, error) {
	if f.config == "" {
		return nil, fmt.Errorf("%w: --config: found none, expected a file", cli.ErrUsage)
	}
	config, err := readConfig(f.config)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrInput, err)
	}
	rest, err := clusterConfig(f.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrInput, err)
	}
	log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	return newController(config, f, rest, log, cmd.OutOrStdout())
}
