package kind

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"heartbed/testbed/live"
)

// Containers outlive who made them, a test that panics included, and six nodes
// are a burden to the machine. So a guard is started beside each cluster: this
// program under another name, in a session of its own, whose input ends when
// its run does, however it does.

// guardName is how a program is called that is to be a guard; its arguments are
// the folder of the journals and the run.
const guardName = "heartbed-guard"

// An init, for the same reason as that of dockerEnv.
func init() {
	if filepath.Base(os.Args[0]) != guardName || len(os.Args) != 3 {
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // however it ends, it has
	if err := afterEnd(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startGuard starts the guard of a run. release ends it once the run has
// cleaned up itself.
func startGuard(journals, run string) (release func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Args = []string{guardName, journals, run}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for the run
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the cluster's guard: %w", err)
	}
	return func() error {
		_ = input.Close() // fails only when the guard has ended
		return cmd.Wait()
	}, nil
}

// exitLimit is how long a process may take to end after its files are closed.
const exitLimit = 10 * time.Second

// afterEnd cleans up after a run whose process is ending, unless it did itself.
func afterEnd(journals, run string) error {
	for began := time.Now(); time.Since(began) < exitLimit; time.Sleep(50 * time.Millisecond) {
		found, err := live.Leftovers(journals)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(found, func(l live.Leftover) bool { return l.Run == run })
		if i < 0 {
			return nil
		}
		if !found[i].Running {
			ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
			defer cancel()
			_, err := Down(ctx, journals)
			return err
		}
	}
	return nil // it lives, and could not clean up, of which it tells itself
}
