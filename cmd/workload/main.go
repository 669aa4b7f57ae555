// Workload is the program that runs inside a testbed: the services of an
// application, their gateway, the probe of round-trip times and the load
// generator.
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
)

// Exit codes, as those of heartbed.
const (
	exitDone        = 0
	exitFailed      = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

// errInput: the command line or a file it names makes no sense.
var errInput = errors.New("bad input")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and gives its exit code. Data goes to stdout,
// progress and errors to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(stderr, "workload: %v\n", err)
	switch {
	case errors.Is(err, errInput):
		return exitBadInput
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "workload",
		Short:         "What runs inside a testbed: services, gateway, probe, load",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          input(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errInput, err) })
	root.AddCommand(
		serveCommand(),
		probeCommand(),
		loadCommand(),
		selftestCommand(),
	)
	return root
}

// input makes a wrong number of arguments an input error.
func input(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", errInput, err)
		}
		return nil
	}
}
