package main

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	basecmd "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	adapteroptions "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd/options"

	"heartbed/cmd/internal/cli"
)

// shownFlags are those of Kubernetes' library that the help shows. It has some
// sixty.
var shownFlags = []string{"secure-port", "bind-address", "tls-cert-file", "tls-private-key-file", "cert-dir", "lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"}

func serveCommand() *cobra.Command {
	var s settings
	adapter := newAdapter()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Take what proxies push, and serve it as custom metrics",
		Long: `Serve is the server: proxies push to --listen by Envoy's metrics service, the
API server asks for custom metrics at --secure-port, and --http tells how it is.
It refuses to start when the API custom.metrics.k8s.io leads to another Service
than its own. On a request to end it gets not ready, serves on for --drain, lets
go of the streams and ends.

All flags of Kubernetes' library for API servers are taken, such as
--tls-min-version and --audit-log-path; only some are shown.`,
		Example: `  activescale serve --service monitoring/activescale --certificate-secret activescale-api
  activescale serve --kubeconfig ~/.kube/config --redis redis:6379`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.validate(); err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			s.pass(adapter)
			log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			server, err := newServer(cmd.Context(), s, adapter, log)
			if err != nil {
				return err
			}
			return server.run(cmd.Context())
		},
	}
	s.addTo(cmd.Flags())
	adapter.Flags().VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains(shownFlags, f.Name)
		cmd.Flags().AddFlag(f)
	})
	return cmd
}

// newAdapter is Kubernetes' server of custom metrics with its flags, which
// serves at a port that needs no root.
func newAdapter() *basecmd.AdapterBase {
	options := adapteroptions.NewCustomMetricsAdapterServerOptions()
	options.SecureServing.BindPort = 6443
	adapter := &basecmd.AdapterBase{Name: "activescale", CustomMetricsAdapterServerOptions: options, FlagSet: pflag.NewFlagSet("adapter", pflag.ContinueOnError)}
	adapter.InstallFlags()
	return adapter
}

// pass hands --kubeconfig to the three flags of the library that it stands for.
func (s *settings) pass(adapter *basecmd.AdapterBase) {
	for _, file := range []*string{&adapter.RemoteKubeConfigFile, &adapter.Authentication.RemoteKubeConfigFile, &adapter.Authorization.RemoteKubeConfigFile} {
		if *file == "" {
			*file = s.kubeconfig
		}
	}
}
