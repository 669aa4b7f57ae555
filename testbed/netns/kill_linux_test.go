package netns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// victimEnv makes the test program a run that sets itself up and down until it
// is killed; its value is the folder of the journals.
const victimEnv = "HEARTBED_TEST_VICTIM"

// killsEnv is how often the test kills a run; default 100 where this machine
// must be able to, else 10.
const killsEnv = "HEARTBED_KILLS"

// victim makes all that a run makes on the host, with a shell and its child
// for every replica, and undoes it, again and again. It measures nothing,
// which would take most of its time.
func victim(dir string) {
	l, err := newLayout(testbedtest.Plan())
	for err == nil {
		err = standUp(Options{Journals: dir}, l)
	}
	fmt.Println(err)
	os.Exit(1)
}

func standUp(o Options, l live.Layout) error {
	ctx := context.Background()
	s, err := newSession(o, l)
	if err != nil {
		return err
	}
	if err := s.makeFolder(ctx); err != nil {
		return err
	}
	if err := s.makeGroups(ctx); err != nil {
		return err
	}
	if err := s.makeNamespaces(ctx); err != nil {
		return err
	}
	if err := s.shapeLinks(ctx); err != nil {
		return err
	}
	for k, r := range l.Replicas {
		// The shell ends with us, its child does not.
		p, err := launch(s.nodes[r.On], s.folder, r.Name, s.Groups[k], nil, "/bin/sh", "-c", "sleep 1000 & wait")
		if err != nil {
			return err
		}
		s.processes = append(s.processes, p)
	}
	return s.Close()
}

// Whenever a run is killed, its journal is enough to undo all it made.
func TestKilledRunIsUndone(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	kills := 10
	if testbedtest.Required("netns") {
		kills = 100
	}
	if v := os.Getenv(killsEnv); v != "" {
		var err error
		kills, err = strconv.Atoi(v)
		require.NoError(t, err, killsEnv)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	found := 0
	for range kills {
		dir := t.TempDir()
		cmd := exec.Command(self) // becomes victim
		cmd.Env = append(os.Environ(), victimEnv+"="+dir)
		require.NoError(t, cmd.Start())
		time.Sleep(20*time.Millisecond + rand.N(600*time.Millisecond))
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed, which is an error
		left, err := live.Leftovers(dir)
		require.NoError(t, err)
		if len(left) > 0 {
			require.False(t, left[0].Running)
			require.ErrorContains(t, CheckClean(dir), left[0].Run, "a dirty start is refused")
		}
		done, err := Down(t.Context(), dir)
		require.NoError(t, err)
		for _, d := range done {
			requireNothingLeft(t, d.Run)
			found += d.Changes
		}
		again, err := Down(t.Context(), dir)
		require.NoError(t, err)
		require.Empty(t, again)
	}
	require.Positive(t, found, "no kill came while anything was there")
}

// requireNothingLeft looks for the traces of a run on this host.
func requireNothingLeft(t *testing.T, run string) {
	t.Helper()
	for _, pattern := range []string{
		filepath.Join(namespaceFolder, "*"+run+"*"),
		filepath.Join(DefaultJournals(), "*"+run+"*"), filepath.Join(os.TempDir(), "*"+run+"*"),
		filepath.Join(os.TempDir(), "*", "*", "*"+run+"*"), // of t.TempDir
		filepath.Join("/sys/fs/cgroup", groupPrefix+run), filepath.Join("/sys/fs/cgroup/*", groupPrefix+run),
	} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, p := range processes {
		// What cannot be read belongs to a process that has ended meanwhile.
		output, _ := os.Readlink(p + "/fd/1")                                    // of replicas: a log of the run
		delays, _ := os.ReadFile(p + "/environ")                                 // of packet delays: the namespace
		require.NotContains(t, output+string(delays), run, "process of the run") // random, so it stands for nothing else
	}
}

func TestDownUndoesLeftovers(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	dir := t.TempDir()
	j, err := live.OpenJournal(dir, "0badcafe", 1<<30, 1) // no such process
	require.NoError(t, err)
	require.NoError(t, j.Add(live.Entry{Kind: kindNamespace, Name: "hb-0badcafe-1"}))
	require.NoError(t, makeNamespace("hb-0badcafe-1"))
	require.NoError(t, j.Leave())
	require.ErrorContains(t, CheckClean(dir), "heartbed down")
	done, err := Down(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []live.Removed{{Run: "0badcafe", Changes: 1}}, done)
	requireNothingLeft(t, "0badcafe")
	require.NoError(t, CheckClean(dir))
}

// A damaged journal removes nothing that this backend cannot have made.
func TestRemoveRefusesForeignNames(t *testing.T) {
	for _, e := range []live.Entry{
		{Kind: kindNamespace, Name: "mine"}, {Kind: kindNamespace, Name: "hb-../../etc"},
		{Kind: kindCPUGroup, Name: "docker"}, {Kind: kindCPUGroup, Name: "heartbed-x/../docker"},
		{Kind: kindFolder, Name: "/"}, {Kind: kindFolder, Name: "heartbed-x"}, {Kind: kindFolder, Name: "/home"},
		{Kind: "disk", Name: "heartbed-x"},
	} {
		require.Error(t, remove(t.Context(), e), "%v", e)
	}
}

// needsRoot says whether namespaces and groups can be made here.
func needsRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root: %w", errors.ErrUnsupported)
	}
	return errors.Join(onOwnThread(tryLinks), tryGroup())
}
