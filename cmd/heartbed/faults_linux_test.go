package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
	"heartbed/testbed/live"
	"heartbed/testbed/netns"
	"heartbed/testbed/testbedtest"
)

// journalsEnv makes the test program heartbed itself, with the journals of
// netns in the folder that is its value: other runs on this machine have theirs.
const journalsEnv = "HEARTBED_TEST_JOURNALS"

func TestMain(m *testing.M) {
	dir := os.Getenv(journalsEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	backends["netns"] = place{
		netns.Backend{Options: netns.Options{Journals: dir}}, "", 1,
		func(string) error { return netns.CheckClean(dir) },
		func(ctx context.Context, _ string) ([]live.Removed, error) { return netns.Down(ctx, dir) },
		nil,
	}
	main()
}

// program is heartbed as a process.
type program struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

func start(t *testing.T, journals string, as *syscall.SysProcAttr, args ...string) *program {
	t.Helper()
	// By its link, which needs no right to read the folder it lies in.
	p := &program{Cmd: exec.CommandContext(t.Context(), "/proc/self/exe", args...)}
	p.Env = append(os.Environ(), journalsEnv+"="+journals)
	p.Stdout, p.Stderr, p.SysProcAttr = &p.stdout, &p.stderr, as
	require.NoError(t, p.Start())
	return p
}

// end waits for the program and gives its exit code, -1 if it was killed.
func (p *program) end() int {
	_ = p.Wait() // the code says it
	return p.ProcessState.ExitCode()
}

// short is a run on netns of one trial a policy, in a few seconds.
func short(out, policies string) []string {
	return []string{"run", "--file", "testdata/tiny.yaml", "--backend", "netns", "--policy", policies,
		"--reps", "1", "--warmup", "1s", "--duration", "4s", "--out", out}
}

// replica waits for the process of a replica, another one than those of runs
// before, and gives its number.
func replica(t *testing.T, journals, name string, before ...int) (pid int) {
	t.Helper()
	find := func() bool {
		configs, err := filepath.Glob(filepath.Join(journals, "heartbed-*", "replica*.json"))
		require.NoError(t, err)
		for _, path := range configs {
			var config struct{ Replica string }
			raw, err := os.ReadFile(path)
			if err != nil || json.Unmarshal(raw, &config) != nil || config.Replica != name {
				continue // being written, or removed
			}
			if pid = serving(path); pid != 0 && !slices.Contains(before, pid) {
				return true
			}
		}
		return false
	}
	require.Eventually(t, find, 3*time.Minute, 20*time.Millisecond, "replica %s does not run", name)
	return pid
}

// serving finds the process that serves by a configuration; 0 = there is none.
func serving(config string) int {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, _ := os.ReadFile(path) // or the process has ended
		if strings.Contains(string(line), "serve\x00--config\x00"+config+"\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

func results(t *testing.T, dir string) []experiments.Result {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "results.jsonl"))
	require.NoError(t, err)
	var results []experiments.Result
	for line := range strings.Lines(string(raw)) {
		var r experiments.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		results = append(results, r)
	}
	return results
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "a run cleans up")
}

func TestRunWithoutRoot(t *testing.T) {
	var as *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	journals, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	p := start(t, journals, as, "run", "--scenario", "A", "--backend", "netns", "--out", out)
	require.Equal(t, cli.Failed, p.end())
	require.Contains(t, p.stderr.String(), "heartbed: backend netns: network namespaces need root: run it with sudo")
	require.NoDirExists(t, out)
	requireEmpty(t, journals)
}

// A replica that crashes makes its trial INVALID, which says who and how; the
// trials after it run.
func TestCrashedReplicaIsAResult(t *testing.T) {
	testbedtest.Require(t, "netns", netns.Backend{}.Check(t.Context()))
	journals, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	p := start(t, journals, nil, short(out, "heart,least-request")...)
	require.NoError(t, syscall.Kill(replica(t, journals, "b1"), syscall.SIGKILL))
	require.Equal(t, cli.Failed, p.end())
	require.Contains(t, p.stderr.String(), "1 of 2 trials failed")
	got := results(t, out)
	require.Len(t, got, 2)
	require.Equal(t, experiments.Invalid, got[0].Verdict)
	require.Contains(t, got[0].Error, "process b1 ended: signal: killed")
	require.Empty(t, got[1].Error)
	requireEmpty(t, journals)
}

// A generator that stands still again and again does not offer the load that
// the scenario says: its figures are INVALID.
func TestSlowGeneratorIsInvalid(t *testing.T) {
	testbedtest.Require(t, "netns", netns.Backend{}.Check(t.Context()))
	journals, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	p := start(t, journals, nil, short(out, "heart")...)
	replica(t, journals, "b1")
	slow := exec.CommandContext(t.Context(), "/bin/sh", "-c",
		fmt.Sprintf("while kill -STOP %d && sleep 0.1 && kill -CONT %[1]d; do sleep 0.3; done", p.Process.Pid))
	require.NoError(t, slow.Start())
	p.end()
	require.NoError(t, slow.Wait())
	require.Equal(t, cli.Done, p.ProcessState.ExitCode(), p.stderr.String())
	got := results(t, out)
	require.Equal(t, experiments.Invalid, got[0].Verdict)
	require.Contains(t, strings.Join(got[0].Reasons, "\n"), "the load generator was late: P99")
	requireEmpty(t, journals)
}

// Ctrl-C, which a terminal sends to all processes of the command, ends the run
// and not its replicas before it; all is cleaned up.
func TestCtrlCCleansUp(t *testing.T) {
	testbedtest.Require(t, "netns", netns.Backend{}.Check(t.Context()))
	journals, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	p := start(t, journals, &syscall.SysProcAttr{Setpgid: true}, short(out, "heart")...)
	replica(t, journals, "b1")
	require.NoError(t, syscall.Kill(-p.Process.Pid, syscall.SIGINT))
	require.Equal(t, cli.Interrupted, p.end(), p.stderr.String())
	require.Contains(t, p.stderr.String(), "interrupted after 0 of 1 trials")
	require.NotContains(t, p.stderr.String(), "process b1 ended")
	require.Empty(t, results(t, out))
	requireEmpty(t, journals)
}

// The controller is killed in its second trial. The next run refuses to start
// over what is left, 'down' removes it, and then the same command goes on after
// the first.
func TestKilledControllerGoesOn(t *testing.T) {
	testbedtest.Require(t, "netns", netns.Backend{}.Check(t.Context()))
	journals, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	command := short(out, "heart,least-request")
	p := start(t, journals, nil, command...)
	first := replica(t, journals, "b1")
	replica(t, journals, "b1", first)
	require.NoError(t, p.Process.Kill())
	p.end()
	before := results(t, out)
	require.Len(t, before, 1)

	refused := start(t, journals, nil, command...)
	require.Equal(t, cli.Failed, refused.end())
	require.Regexp(t, `backend netns: found what run [0-9a-f]{8} left behind; remove it with 'heartbed down' or start with --clean`, refused.stderr.String())
	require.Equal(t, before, results(t, out))

	down := start(t, journals, nil, "down")
	require.Equal(t, cli.Done, down.end(), down.stderr.String())
	require.Regexp(t, `netns: run [0-9a-f]{8}: \d+ changes undone`, down.stdout.String())
	requireEmpty(t, journals)

	again := start(t, journals, nil, command...)
	require.Equal(t, cli.Done, again.end(), again.stderr.String())
	require.Contains(t, again.stderr.String(), "1 kept from before")
	after := results(t, out)
	require.Len(t, after, 2)
	require.Equal(t, before[0], after[0])
	requireEmpty(t, journals)
}
