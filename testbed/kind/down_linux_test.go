package kind

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/kind/image"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// What a killed run left in Docker is refused at the next start and removed by
// Down, which can be repeated; an entry whose change was never made is no error.
func TestDownRemovesWhatAKilledRunLeft(t *testing.T) {
	testbedtest.Require(t, "kind", image.Check(t.Context()))
	const name = "heartbed-0badcafe"
	dir := t.TempDir()
	folder := filepath.Join(dir, name)
	j, err := live.OpenJournal(dir, "0badcafe", 1<<30, 1) // no such process
	require.NoError(t, err)
	for _, e := range []live.Entry{{Kind: kindFolder, Name: folder}, {Kind: kindNetwork, Name: name}, {Kind: kindCluster, Name: name}, {Kind: kindContainer, Name: name + "-controller"}} {
		require.NoError(t, j.Add(e))
	}
	require.NoError(t, j.Leave())
	require.NoError(t, os.Mkdir(folder, 0o700))
	_, err = docker(t.Context(), "network", "create", name)
	require.NoError(t, err)

	require.ErrorContains(t, CheckClean(dir), "0badcafe")
	done, err := Down(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []live.Removed{{Run: "0badcafe", Changes: 4}}, done)
	require.NoDirExists(t, folder)
	left, err := docker(t.Context(), "network", "ls", "--quiet", "--filter", "name="+name)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, CheckClean(dir))
	again, err := Down(t.Context(), dir)
	require.NoError(t, err)
	require.Empty(t, again)
}
