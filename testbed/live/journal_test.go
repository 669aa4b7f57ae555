package live

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJournalKeepsWhatWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journals")
	j, err := OpenJournal(dir, "r1", 7, 9)
	require.NoError(t, err)
	require.NoError(t, j.Add(Entry{Kind: "namespace", Name: "hb-r1-1"}))
	want := []Entry{{Kind: KindRun, Name: "r1", PID: 7, Started: 9}, {Kind: "namespace", Name: "hb-r1-1"}}
	got, err := ReadJournal(j.Path)
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = j.file.WriteString(`{"kind":"namesp`) // a crash in the middle
	require.NoError(t, err)
	require.NoError(t, j.file.Close())
	got, err = ReadJournal(j.Path)
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = OpenJournal(dir, "r1", 7, 9)
	require.ErrorIs(t, err, os.ErrExist, "a run's journal is its own")
}

func FuzzReadJournal(f *testing.F) {
	f.Add([]byte("{\"kind\":\"run\",\"name\":\"a\",\"pid\":1,\"started\":2}\n{\"kind\":\"folder\""))
	f.Add([]byte("{}\n[]\n"))
	f.Add([]byte("\n"))
	path := filepath.Join(f.TempDir(), "j.jsonl")
	f.Fuzz(func(t *testing.T, raw []byte) {
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		entries, err := ReadJournal(path)
		if err != nil {
			require.ErrorContains(t, err, path, "the error names the file")
			require.Empty(t, entries)
		}
	})
}
