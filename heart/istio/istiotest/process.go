package istiotest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is a running program.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a program until the end of the test, or until Stop. Its output
// goes to a file, the end of which the log of a failed test shows.
func start(t testing.TB, dir, name string, env []string, path string, args ...string) *Process {
	t.Helper()
	p := &Process{name: name, log: filepath.Join(dir, name+".log"), cmd: exec.Command(path, args...), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the child has its own
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = dir, append(os.Environ(), env...), log, log
	p.cmd.SysProcAttr = diesWithUs()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the program dies with this thread
		err := p.cmd.Start()
		if started <- err; err == nil {
			_ = p.cmd.Wait() // how it ended is in its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", name, p.tail())
		}
	})
	return p
}

// Run starts a program until the end of the test, or until Stop. What it
// prints is in Output.
func Run(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	return start(t, t.TempDir(), filepath.Base(path), nil, path, args...)
}

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.done
}

// Terminate asks the process to end, and gives its exit code.
func (p *Process) Terminate(t testing.TB) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("end %s: %v", p.name, err)
	}
	return p.Exit(t)
}

// Exit waits for the end of the process, a minute at most, and gives its exit
// code.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end:\n%s", p.name, p.tail())
	}
	return p.cmd.ProcessState.ExitCode()
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output is what the process has printed so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *Process) tail() string {
	all := strings.SplitAfter(p.Output(), "\n")
	return strings.Join(all[max(0, len(all)-40):], "")
}

// wait calls ready until it succeeds. The test fails when that takes a minute
// or the process ends.
func (p *Process) wait(t testing.TB, ready func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended before it was ready: %v", p.name, err)
		case <-ctx.Done():
			t.Fatalf("%s is not ready after a minute: %v", p.name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ports finds free ports of the loopback address. Another program might take
// one before it is used; the test then fails.
func ports(t testing.TB, n int) []string {
	t.Helper()
	found := make([]string, n)
	for i := range found {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		found[i] = port
	}
	return found
}

// answers asks a URL, which must answer 200.
func answers(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: answer %s", url, response.Status)
	}
	return nil
}
