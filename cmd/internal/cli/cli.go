// Package cli is what the commands of this module share: their exit codes, the
// errors that lead to them, and how a command line is run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, which scripts rely on.
const (
	Done        = 0
	Failed      = 1
	BadInput    = 2
	Threshold   = 3
	Interrupted = 130
)

var (
	// ErrUsage: the command line makes no sense.
	ErrUsage = errors.New("bad usage")
	// ErrInput: a file that the command line names makes no sense.
	ErrInput = errors.New("bad input")
	// ErrThreshold: all went well and a threshold of the input was missed.
	ErrThreshold = errors.New("threshold missed")
	// ErrInterrupted: Ctrl-C or a request to end.
	ErrInterrupted = errors.New("interrupted")
)

// Main runs the process's command line and exits. The context of run ends with
// SIGINT or SIGTERM; a second signal ends the program at once.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run executes one command line of root and gives its exit code. Data goes to
// stdout, progress and errors to stderr. input are errors of other packages
// that mean bad input, besides ErrInput. A root without a Run of its own prints
// its help.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer, input ...error) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", ErrUsage, err) })
	if !root.Runnable() {
		root.Args = Args(cobra.NoArgs)
		root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	root.SetArgs(append([]string{}, args...)) // nil would mean those of the process
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	}
	if errors.Is(err, ErrUsage) {
		fmt.Fprintf(stderr, "See '%s --help'.\n", cmd.CommandPath())
	}
	return code(err, input)
}

func code(err error, input []error) int {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrInterrupted), errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, ErrThreshold):
		return Threshold
	case errors.Is(err, ErrUsage), errors.Is(err, ErrInput), slices.ContainsFunc(input, func(e error) bool { return errors.Is(err, e) }):
		return BadInput
	}
	return Failed
}

// Args makes a wrong number of arguments a usage error.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		return nil
	}
}
