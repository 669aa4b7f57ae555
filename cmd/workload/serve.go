package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/workloads/service"
)

func serveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run one replica of a component, or the gateway",
		Long: `Serve runs the replica that FILE describes (JSON) until it gets SIGTERM, then
finishes what is in flight. Its routes come over xDS from the server that the
environment variable GRPC_XDS_BOOTSTRAP_CONFIG names.

GOMAXPROCS follows the CPU quota of the cgroup or of the tightest one above
it, unless the environment sets it.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: --config: found none, expected a file", cli.ErrUsage)
			}
			cfg, err := service.ReadConfig(file)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrInput, err)
			}
			if err := limitThreads(cfg); err != nil {
				return err
			}
			s, err := service.New(cfg)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: component %s on %v, metrics on %v, GOMAXPROCS %d\n",
				cfg.Replica, cfg.Component, s.Addr(), s.MetricsAddr(), runtime.GOMAXPROCS(0))
			return s.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the replica's description, a JSON file")
	return cmd
}

// limitThreads keeps the Go runtime from running more threads at once than
// the quota lets it: they would use it up early in each period and then all
// stand still.
func limitThreads(cfg service.Config) error {
	if os.Getenv("GOMAXPROCS") != "" {
		return nil
	}
	quota, err := service.CPUQuota()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(service.Procs(runtime.NumCPU(), cfg.App.Server, quota, cfg.App.Server.LimitCores))
	return nil
}
