package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// program is a command whose output is of interest only when it fails.
type program struct {
	dir    string
	env    []string // besides the process's own
	stdin  io.Reader
	stdout io.Writer // nil = kept for the error
}

// graceTime is what a program gets to clean up after an interrupt.
const graceTime = 10 * time.Second

// run runs a program to its end. Cancelling interrupts it as Ctrl-C would. An
// error quotes the command and the end of what it printed.
func (p program) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdin = p.dir, p.stdin
	cmd.Env = append(os.Environ(), p.env...)
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	if p.stdout != nil {
		cmd.Stdout = p.stdout
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = graceTime
	cmd.SysProcAttr = diesWithUs()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w%s", strings.Join(cmd.Args, " "), err, said.quote())
	}
	return nil
}

// output is run for a program that prints one value.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	var out bytes.Buffer
	err := program{dir: dir, env: env, stdout: &out}.run(ctx, name, args...)
	return strings.TrimSpace(out.String()), err
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

const tailBytes = 2000

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailBytes; over > 0 {
		t.kept = t.kept[over:]
	}
	return len(p), nil
}

func (t *tail) quote() string {
	text := strings.TrimSpace(string(t.kept))
	if text == "" {
		return ""
	}
	return "\n  " + strings.ReplaceAll(text, "\n", "\n  ")
}
