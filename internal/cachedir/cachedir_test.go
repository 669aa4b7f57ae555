package cachedir

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	t.Setenv("HEARTBED_CACHE", "some/where")
	dir, err := Find()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(here, "some/where"), dir)

	t.Setenv("HEARTBED_CACHE", "")
	dir, err = Find()
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(dir))
	require.Equal(t, "heartbed", filepath.Base(dir))

	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, "")
	}
	_, err = Find()
	require.ErrorContains(t, err, "find the cache folder (HEARTBED_CACHE would name one)")
}
