package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// disturbed runs a short load and calls disturb in its second step, half a
// second into the measured time. later are the steps after it.
func disturbed(t *testing.T, s *session, disturb func() error, later func(context.Context) error) testbed.Measurement {
	t.Helper()
	s.Layout.Plan.Timing = testbed.Timing{Warmup: workloads.Duration(1500 * time.Millisecond), Duration: workloads.Duration(4 * time.Second)}
	steps := 0
	m, err := s.Run(t.Context(), func(ctx context.Context) error {
		switch steps++; {
		case steps < 2:
			return nil
		case steps == 2:
			return disturb()
		}
		return later(ctx)
	})
	require.NoError(t, err)
	require.Greater(t, steps, 3)
	return m
}

func nothing(context.Context) error { return nil }

// delayProcess finds the process that delays what arrives at a node.
func delayProcess(t *testing.T, s *session, node int) int {
	t.Helper()
	var info unix.Stat_t
	require.NoError(t, unix.Stat(namespacePath(s.nodes[node]), &info))
	pids, err := processesIn(info)
	require.NoError(t, err)
	for _, pid := range pids {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		require.NoError(t, err)
		if strings.HasPrefix(string(name), "heartbed-delay") {
			return pid
		}
	}
	require.Fail(t, "no process delays packets")
	return 0
}

// A queue that runs full loses packets, which TCP sends again much later: such
// a run's latency is the testbed's and not the application's.
func TestFullQueueIsAFault(t *testing.T) {
	s := begin(t, liveBackend(t), testbedtest.Plan(), testbedtest.Table(1, 1))
	m := disturbed(t, s, func() error {
		delay := delayProcess(t, s, 0)
		if err := unix.Kill(delay, unix.SIGSTOP); err != nil {
			return err
		}
		flooded := flood(s, 20_000)
		if err := unix.Kill(delay, unix.SIGCONT); err != nil {
			return err
		}
		return flooded
	}, nothing)
	require.Empty(t, m.StepErrors)
	require.Regexp(t, `shaping dropped \d+ of \d+ packets`, strings.Join(m.Faults, "\n"))
	require.Regexp(t, `measured delays off the scenario: \d+ of \d+ packets were late`, strings.Join(m.Faults, "\n"))
}

// flood sends packets from the second node to the first.
func flood(s *session, packets int) error {
	return inNamespace(s.nodes[1], func() error {
		conn, err := net.Dial("udp4", net.JoinHostPort(s.Layout.Nodes[0].Addr.String(), "9"))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range packets {
			// That nobody listens comes back as an error of a later packet.
			_, _ = conn.Write([]byte("x"))
		}
		return nil
	})
}

// Without its delay process a node is at no distance, or cut off.
func TestDelayThatDiesIsAFault(t *testing.T) {
	s := begin(t, liveBackend(t), testbedtest.Plan(), testbedtest.Table(1, 1))
	m := disturbed(t, s, func() error { return unix.Kill(delayProcess(t, s, 1), unix.SIGKILL) }, nothing)
	require.Len(t, m.Faults, 1)
	require.Regexp(t, `shaping: the process \d+ that delays packets ended`, m.Faults[0])
	require.Error(t, s.Shapers[1].Close())
	s.Shapers = s.Shapers[:1]
}

// Callers go on with the table they have when the xDS server is gone, and the
// steps that could not bring a new one are errors of the result.
func TestRunGoesOnWithoutItsXDSServer(t *testing.T) {
	s := begin(t, liveBackend(t), testbedtest.Plan(), testbedtest.Table(1, 0))
	m := disturbed(t, s, func() error { s.Routes.Stop(); return nil }, func(ctx context.Context) error {
		return s.Route(ctx, testbedtest.Table(0, 1))
	})
	require.NotEmpty(t, m.StepErrors)
	require.Contains(t, m.StepErrors[0], "route: the xDS server has ended, callers keep the table they have")
	require.Equal(t, m.Offered, m.Answered)
	require.Len(t, m.Tables, 1)
	for _, share := range m.Seen {
		require.NotEqual(t, "b2", share.To.Name)
	}
}

// A replica whose exporter is not reached any more is absent from what the
// controller observes, never idle, and the result says so.
func TestSilentExporter(t *testing.T) {
	p := testbedtest.Plan()
	s := begin(t, liveBackend(t), p, testbedtest.Table(1, 1))
	silent := s.Layout.Replicas[3]
	require.Equal(t, "b1", silent.Name)
	var last heart.Observation
	m := disturbed(t, s, func() error { return unreachable(s.bridge, silent) }, func(ctx context.Context) (err error) {
		last, err = s.Observe(ctx)
		return err
	})
	require.NotContains(t, last.Replicas, "b1")
	require.Positive(t, last.Replicas["b2"].Requests)
	require.Equal(t, m.Offered, m.Answered, "its requests go on")
	require.Contains(t, m.Warnings, "replica b1: its requests are missing from the seen shares, its metrics could not be read")
}

// unreachable makes the controller lose the way to a replica.
func unreachable(namespace string, r live.Replica) error {
	return withLinks(namespace, func(h *netlink.Handle) error {
		to := &net.IPNet{IP: r.Addr.AsSlice(), Mask: net.CIDRMask(32, 32)}
		return h.RouteAdd(&netlink.Route{Dst: to, Type: unix.RTN_UNREACHABLE})
	})
}

// A generator that stands still sends late. Its lateness is measured, so that
// the verdict can be INVALID.
func TestLateGeneratorIsMeasured(t *testing.T) {
	s := begin(t, liveBackend(t), testbedtest.Plan(), testbedtest.Table(1, 1))
	m := disturbed(t, s, func() error {
		return exec.CommandContext(t.Context(), "/bin/sh", "-c", fmt.Sprintf("kill -STOP %d; sleep 0.4; kill -CONT %[1]d", os.Getpid())).Run()
	}, nothing)
	require.Greater(t, m.Lateness.ValueAtQuantile(99), (100 * time.Millisecond).Microseconds())
	require.InDelta(t, 400, m.Offered, 2, "none is left out")
}

// What is there already is somebody else's: it is an error that names it, and
// closing leaves it alone.
func TestNamesThatAreTaken(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	l, err := newLayout(testbedtest.Plan())
	require.NoError(t, err)
	s, err := newSession(Options{Journals: t.TempDir()}, l)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(s.folder, 0o755))
	require.ErrorContains(t, s.makeFolder(t.Context()), "folder "+s.folder+" is there already")
	require.NoError(t, makeNamespace(s.client))
	require.ErrorContains(t, s.makeNamespaces(t.Context()), "namespace "+s.client+" is there already")
	require.NoError(t, s.Close())
	require.DirExists(t, s.folder)
	require.FileExists(t, namespacePath(s.client))
	require.NoFileExists(t, namespacePath(s.bridge))
	require.NoError(t, removeNamespace(t.Context(), s.client))
}

// What a process said last is part of the error: its log goes with the run.
func TestEndOfAProcessIsTold(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	const namespace = "hb-0badcafe-end"
	require.NoError(t, makeNamespace(namespace))
	t.Cleanup(func() { require.NoError(t, removeNamespace(context.Background(), namespace)) })
	for name, c := range map[string]struct{ script, want string }{
		"crash":  {"echo 1; echo 2; echo 3 >&2; echo 4; exit 3", "process crash ended: exit status 3; its last output: 2 | 3 | 4"},
		"quiet":  {"exit 0", "process quiet ended: exit code 0"},
		"killed": {"echo out of memory; kill -KILL $$", "process killed ended: signal: killed; its last output: out of memory"},
	} {
		p, err := launch(namespace, t.TempDir(), name, nil, nil, "/bin/sh", "-c", c.script)
		require.NoError(t, err)
		told := make(chan error, 1)
		unwatch := watch([]*process{p}, func(err error) { told <- err })
		require.EqualError(t, <-told, c.want)
		unwatch()
	}
}

// A disk without room for the journal ends a run before it changes anything.
func TestJournalOnAFullDisk(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	dir := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "full"), make([]byte, 4096), 0o600))
	_, err := Backend{Options{Journals: dir}}.Start(t.Context(), testbedtest.Plan())
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "write journal")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
}
