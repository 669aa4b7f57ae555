// Workload is the program that runs inside a testbed: the services of an
// application, their gateway, the probe of round-trip times and the load
// generator.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
)

func main() { cli.Main(run) }

// run executes one command line and gives its exit code. Data goes to stdout,
// progress and errors to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, rootCommand(), args, stdout, stderr)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "workload",
		Short: "What runs inside a testbed: services, gateway, probe, load",
	}
	root.AddCommand(serveCommand(), probeCommand(), loadCommand(), agentCommand(), selftestCommand())
	return root
}
