// Heartbed measures request-allocation policies for microservices: it runs
// scenarios on a testbed and reports what each policy gains.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"heartbed/experiments"
)

// Exit codes, which scripts rely on.
const (
	exitDone        = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitThreshold   = 3
	exitInterrupted = 130
)

var (
	// errThreshold: the run went well and a threshold of its spec was missed.
	errThreshold = errors.New("threshold missed")
	// errInterrupted: Ctrl-C or a request to end.
	errInterrupted = errors.New("interrupted")
	// errUsage: the command line makes no sense.
	errUsage = errors.New("bad usage")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run executes one command line and gives its exit code. Data goes to stdout,
// progress and errors to stderr.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	fmt.Fprintf(stderr, "heartbed: %v\n", err)
	if errors.Is(err, errUsage) {
		fmt.Fprintf(stderr, "See '%s --help'.\n", cmd.CommandPath())
	}
	return code
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, errThreshold):
		return exitThreshold
	case errors.Is(err, errUsage), errors.Is(err, experiments.ErrInput):
		return exitBadInput
	}
	return exitFailed
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
		Example:       "  heartbed run --scenario A\n  heartbed report out/A-sim",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	root.AddCommand(runCommand(), reproduceCommand(), reportCommand(), compareCommand(), importCommand(),
		allocateCommand(), scaleCommand(), scenariosCommand(), policiesCommand(), doctorCommand(), shapeCommand(), downCommand(), versionCommand())
	return root
}

// usage makes a wrong number of arguments a usage error.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		return nil
	}
}
