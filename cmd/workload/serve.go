package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/workloads/service"
)

func serveCommand() *cobra.Command {
	var file string
	var push service.Push
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run one replica of a component, or the gateway",
		Long: `Serve runs the replica that FILE describes (JSON) until it gets SIGTERM, then
finishes what is in flight. Its routes come over xDS from the server that the
environment variable GRPC_XDS_BOOTSTRAP_CONFIG names.

GOMAXPROCS follows the CPU quota of the cgroup or of the tightest one above
it, unless the environment sets it.

With --push-to it reports its requests in flight to a receiver of Envoy's
metrics service, as the Envoy of an Istio sidecar would: it has none, and stands
in for it. The pod is named by the environment variables POD_NAME,
POD_NAMESPACE and POD_IP.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return fmt.Errorf("%w: --config: found none, expected a file", cli.ErrUsage)
			}
			cfg, err := service.ReadConfig(file)
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrInput, err)
			}
			cfg.Push = pushes(cfg.Push, push)
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
	cmd.Flags().StringVar(&push.To, "push-to", "", "receiver of metrics, host:port; by default none")
	cmd.Flags().DurationVar(&push.Every, "push-every", 0, "time between two pushes (default that of the description, else 5s)")
	return cmd
}

// pushes is where the replica reports: flags go before the description, which
// goes before the environment.
func pushes(described, flags service.Push) service.Push {
	return service.Push{
		To: cmp.Or(flags.To, described.To), Every: cmp.Or(flags.Every, described.Every),
		Pod: cmp.Or(described.Pod, os.Getenv("POD_NAME")), Namespace: cmp.Or(described.Namespace, os.Getenv("POD_NAMESPACE")),
		IP: cmp.Or(described.IP, os.Getenv("POD_IP")),
	}
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
