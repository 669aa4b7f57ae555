// Heartbed measures request-allocation policies for microservices: it runs
// scenarios on a testbed and reports what each policy gains.
package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
	"heartbed/testbed/cluster"
)

func main() { cli.Main(Run) }

// Run executes one command line and gives its exit code. Data goes to stdout,
// progress and errors to stderr.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, rootCommand(), args, stdout, stderr, experiments.ErrInput, cluster.ErrInput)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "heartbed",
		Short: "Measure request-allocation policies for microservices",
		Long: `Heartbed answers which share of each caller's requests should go to which
replica, and what a policy gains: it runs scenarios, compares policies on the
same arrivals and sets the results beside the published figures.

Exit codes: 0 done, 1 something failed, 2 bad input, 3 a threshold of the
scenario was missed, 130 interrupted (results so far are kept).`,
		Example: "  heartbed run --scenario A\n  heartbed report out/A-sim",
	}
	root.AddCommand(runCommand(), reproduceCommand(), reportCommand(), compareCommand(), importCommand(),
		allocateCommand(), scaleCommand(), scenariosCommand(), policiesCommand(), doctorCommand(), shapeCommand(), upCommand(), downCommand(), imageCommand(), versionCommand())
	return root
}
