// Activescale serves the requests in flight that Envoy proxies push as custom
// metrics, by which a HorizontalPodAutoscaler scales.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"heartbed/cmd/internal/cli"
)

func main() {
	// what the libraries log is JSON like our own
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetSlogLogger(log)
	redis.SetLogger(redisLog{log})
	cli.Main(Run)
}

// redisLog takes what the library of Redis says of its connections. What fails
// is told by the store.
type redisLog struct{ *slog.Logger }

func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Debug(fmt.Sprintf(format, args...))
}

// Run executes one command line and gives its exit code. Data goes to stdout,
// logs (JSON) and errors to stderr.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, rootCommand(), args, stdout, stderr)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "activescale",
		Short: "Custom metrics of the requests that are in flight, as proxies push them",
		Long: `Activescale takes what Envoy proxies push of the requests in flight and serves
it, by pod, as custom metrics: a HorizontalPodAutoscaler then scales by load that
is a few seconds old.

Exit codes: 0 done, 1 something failed or is wrong, 2 bad input, 130 interrupted.`,
		Example: "  activescale preflight\n  activescale doctor --namespace shop",
	}
	root.AddCommand(serveCommand(), preflightCommand(), doctorCommand())
	return root
}
