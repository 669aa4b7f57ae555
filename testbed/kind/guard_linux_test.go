package kind

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/kind/image"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// panicEnv holds the folder of journals of a test that is to panic.
const panicEnv = "HEARTBED_TEST_PANIC"

// A run that panics leaves nothing: its guard removes what its journal names.
func TestGuardCleansUpAfterAPanic(t *testing.T) {
	if dir := os.Getenv(panicEnv); dir != "" {
		panicWithNetwork(t, dir)
	}
	testbedtest.Require(t, "kind", image.Check(t.Context()))
	dir := t.TempDir()
	again := exec.Command(os.Args[0], "-test.run=^TestGuardCleansUpAfterAPanic$")
	again.Env = append(os.Environ(), panicEnv+"="+dir)
	// A file: a guard holds it open, and a pipe would be waited for.
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	require.NoError(t, err)
	defer said.Close()
	again.Stdout, again.Stderr = said, said
	require.Error(t, again.Run())
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	require.True(t, bytes.Contains(text, []byte("panic: on purpose")), "%s", text)

	require.Eventually(t, func() bool {
		left, err := live.Leftovers(dir)
		return err == nil && len(left) == 0
	}, 20*time.Second, 50*time.Millisecond)
	left, err := docker(t.Context(), "network", "ls", "--quiet", "--filter", "name="+namePrefix+"panic")
	require.NoError(t, err)
	require.Empty(t, left)
}

func panicWithNetwork(t *testing.T, dir string) {
	j, run, err := live.NewRun(dir)
	require.NoError(t, err)
	_, err = startGuard(dir, run)
	require.NoError(t, err)
	name := namePrefix + "panic" + run
	require.NoError(t, j.Add(live.Entry{Kind: kindNetwork, Name: name}))
	_, err = docker(t.Context(), "network", "create", name)
	require.NoError(t, err)
	panic("on purpose")
}
