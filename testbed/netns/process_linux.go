package netns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"heartbed/tc"
)

// process is a program of the run in a namespace and a CPU group.
type process struct {
	name  string
	group *tc.Group
	log   string // path of its output
	cmd   *exec.Cmd
	done  chan struct{} // closed when it has ended
	err   error         // how, once it has
}

// launch starts a program. Its output goes to a file of its name in folder.
// group may be nil.
func launch(namespace, folder, name string, group *tc.Group, env []string, program string, args ...string) (*process, error) {
	p := &process{name: name, group: group, log: filepath.Join(folder, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close() // the child has its own
	p.cmd = exec.Command(program, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// It ends with this program even when that is killed, and not by the Ctrl-C
	// that a terminal sends to a whole group: that would look like a crash.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := inNamespace(namespace, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if group == nil {
		return p, nil
	}
	if err := group.Add(p.cmd.Process.Pid); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), p.stop())
	}
	return p, nil
}

// stop ends the process at once and waits for it.
func (p *process) stop() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// ended says how the process ended and what it said last.
func (p *process) ended() error {
	how := "exit code 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("process %s ended: %s%s", p.name, how, lastLines(p.log))
}

const tailLines = 3

// lastLines gives the end of a log for an error text.
func lastLines(path string) string {
	raw, err := os.ReadFile(path)
	raw = bytes.TrimSpace(raw)
	if err != nil || len(raw) == 0 {
		return ""
	}
	lines := strings.Split(string(raw), "\n")
	return "; its last output: " + strings.Join(lines[max(0, len(lines)-tailLines):], " | ")
}

// watch calls report for the first process that ends before the returned
// function is called, which waits until no report can come any more.
func watch(processes []*process, report func(error)) (unwatch func()) {
	stop := make(chan struct{})
	var watchers sync.WaitGroup
	for _, p := range processes {
		watchers.Go(func() {
			select {
			case <-p.done:
				report(p.ended())
			case <-stop:
			}
		})
	}
	return sync.OnceFunc(func() {
		close(stop)
		watchers.Wait()
	})
}
