package netns

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJournalKeepsWhatWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journals")
	j, err := openJournal(dir, "r1", 7, 9)
	require.NoError(t, err)
	require.NoError(t, j.add(entry{Kind: kindNamespace, Name: "hb-r1-1"}))
	want := []entry{{Kind: kindRun, Name: "r1", PID: 7, Started: 9}, {Kind: kindNamespace, Name: "hb-r1-1"}}
	got, err := readJournal(j.path)
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = j.file.WriteString(`{"kind":"namesp`) // a crash in the middle
	require.NoError(t, err)
	require.NoError(t, j.file.Close())
	got, err = readJournal(j.path)
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = openJournal(dir, "r1", 7, 9)
	require.ErrorIs(t, err, os.ErrExist, "a run's journal is its own")
}

func FuzzReadJournal(f *testing.F) {
	f.Add([]byte("{\"kind\":\"run\",\"name\":\"a\",\"pid\":1,\"started\":2}\n{\"kind\":\"folder\""))
	f.Add([]byte("{}\n[]\n"))
	f.Add([]byte("\n"))
	path := filepath.Join(f.TempDir(), "j.jsonl")
	f.Fuzz(func(t *testing.T, raw []byte) {
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		entries, err := readJournal(path)
		if err != nil {
			require.ErrorContains(t, err, path, "the error names the file")
			require.Empty(t, entries)
		}
	})
}
