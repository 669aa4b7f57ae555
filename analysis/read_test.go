package analysis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

const goodLine = `{"trial":{"id":"x1","scenario":"LAN","app":"pair","backend":"sim","policy":"heart","rps":100,"rep":1,"seed":1},"verdict":"VALID","latencyMs":{"mean":1,"p50":1,"p90":2,"p99":3,"p999":4,"max":5}}` + "\n"

func TestDecodeResultsNamesEveryFault(t *testing.T) {
	cases := []struct {
		name, input string
		results     int
		faults      []string
	}{
		{"empty", "", 0, nil},
		{"one", goodLine, 1, nil},
		{"blank lines are no faults", "\n" + goodLine + "\n\n", 1, nil},
		{"no line end but whole", strings.TrimSpace(goodLine), 1, nil},
		{"cut off", goodLine + goodLine[:60], 1, []string{"line 2", "truncated"}},
		{"garbled in the middle", goodLine + "}{\n" + goodLine, 2, []string{"line 2", "no whole result"}},
		{"two on a line", strings.TrimSpace(goodLine) + goodLine, 0, []string{"line 1", "one object a line"}},
		{"not a result", `{"a":1}` + "\n", 0, []string{"trial.id", "trial.rps", "verdict"}},
		{"other type", "[1,2]\n", 0, []string{"line 1"}},
		{"bad rate", strings.Replace(goodLine, `"rps":100`, `"rps":-3`, 1), 0, []string{"trial.rps: found -3"}},
		{"valid without latencies", strings.Replace(goodLine, `"latencyMs"`, `"other"`, 1), 0, []string{"latencyMs"}},
		{"both ends bad", "x\n" + goodLine + "y\n", 1, []string{"line 1", "line 3"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			results, err := decodeResults(strings.NewReader(c.input))
			require.Len(t, results, c.results)
			if len(c.faults) == 0 {
				require.NoError(t, err)
			}
			for _, f := range c.faults {
				require.ErrorContains(t, err, f)
			}
		})
	}
}

func FuzzDecodeResults(f *testing.F) {
	f.Add(goodLine)
	f.Add(goodLine + goodLine[:50])
	f.Add("\x00\n{}\n")
	f.Fuzz(func(t *testing.T, input string) {
		results, err := decodeResults(strings.NewReader(input))
		lines := 0
		for _, l := range strings.Split(input, "\n") {
			if len(strings.TrimSpace(l)) > 0 {
				lines++
			}
		}
		if err == nil && len(results) > lines {
			t.Fatalf("%d results from %d lines", len(results), lines)
		}
		for _, r := range results {
			if checkResult(r) != nil {
				t.Fatalf("kept a line that is no result: %+v", r)
			}
		}
	})
}

func TestReadJoinsFoldersAndKeepsARunOnce(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"LAN", "A"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	other := strings.NewReplacer(`"x1"`, `"x2"`, "LAN", "A").Replace(goodLine)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LAN", resultsFile), []byte(goodLine+goodLine), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "A", resultsFile), []byte(other), 0o644))
	set, err := Read(dir)
	require.NoError(t, err)
	require.Len(t, set.Results, 2)
	require.Len(t, Join(set, set).Results, 2)
}

func TestReadSaysWhatIsMissing(t *testing.T) {
	empty := t.TempDir()
	_, err := Read(empty)
	require.ErrorIs(t, err, experiments.ErrInput)
	require.ErrorContains(t, err, "found no results.jsonl")
	_, err = Read(filepath.Join(empty, "nowhere"))
	require.ErrorIs(t, err, experiments.ErrInput)
}

// Ten thousand fast requests in one file and a hundred slow ones in another:
// the P99 of all is the fast ones' last value, not a mean of two percentiles.
func TestHistogramMergesCounts(t *testing.T) {
	dir := madeDir(t, 2, nil)
	set, err := Read(dir)
	require.NoError(t, err)
	c := set.Cells()[0]
	h, err := set.histogram(c)
	require.NoError(t, err)
	require.Equal(t, int64(4000), h.TotalCount())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "hdr", c.runs[0].Trial.ID+".hlog"), []byte("#[garbled\nx,y,z\n"), 0o644))
	_, err = set.histogram(c)
	require.ErrorIs(t, err, experiments.ErrInput)
	require.ErrorContains(t, err, ".hlog")
}
