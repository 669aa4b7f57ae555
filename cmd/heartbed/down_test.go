package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDownSaysWhatItDid(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no live backend runs here")
	}
	journals, folder := t.TempDir(), filepath.Join(t.TempDir(), "heartbed-1a")
	say := func() string {
		var out bytes.Buffer
		require.NoError(t, down(t.Context(), &out, journals, "netns"))
		return out.String()
	}
	require.Equal(t, "nothing to remove\n", say())
	require.NoError(t, os.Mkdir(folder, 0o755))
	journal := `{"kind":"run","name":"1a","pid":1073741824,"started":1}` + "\n" + fmt.Sprintf(`{"kind":"folder","name":%q}`, folder) + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(journals, "1a.jsonl"), []byte(journal), 0o600))
	require.Equal(t, "netns: run 1a: 1 changes undone\n", say())
	require.NoDirExists(t, folder)
	require.Equal(t, "nothing to remove\n", say())
}
