package live

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunningRunIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	began, err := StartTime(os.Getpid())
	require.NoError(t, err)
	j, err := OpenJournal(dir, "12345678", os.Getpid(), began)
	require.NoError(t, err)
	require.NoError(t, j.Leave())
	done, err := Down(t.Context(), dir, nil)
	require.NoError(t, err)
	require.Equal(t, []Removed{{Run: "12345678", Running: true}}, done)
	require.FileExists(t, j.Path)
	require.NoError(t, CheckClean(dir), "parallel runs do not disturb each other")
	require.False(t, alive(os.Getpid(), began+1), "another process had the number before")
}
