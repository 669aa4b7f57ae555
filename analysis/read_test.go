package analysis

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
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

// writeHistogram puts values (ms, with how often they came) into a .hlog file.
func writeHistogram(t *testing.T, path string, counts map[int64]int64) {
	t.Helper()
	h := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	for ms, n := range counts {
		require.NoError(t, h.RecordValues(1000*ms, n))
	}
	var hlog bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&hlog)
	require.NoError(t, w.OutputIntervalHistogram(h))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, hlog.Bytes(), 0o644))
}

// Ten thousand fast requests in one file and a hundred slow ones in another:
// the P99 of all is that of the fast ones, not a mean of two percentiles
// (scylladb/scylla-monitoring#1886, grafana/k6-operator#812). The cell's own
// P99 is the median of the runs' and says of how many.
func TestPercentilesAreMergedNotAveraged(t *testing.T) {
	dir := t.TempDir()
	var lines strings.Builder
	for rep, ms := range map[int]int{1: 10, 2: 1000} {
		latency := fmt.Sprintf(`{"mean":%d,"p50":%[1]d,"p90":%[1]d,"p99":%[1]d,"p999":%[1]d,"max":%[1]d}`, ms)
		fmt.Fprintf(&lines, `{"trial":{"id":"x%d","scenario":"LAN","app":"pair","backend":"sim","policy":"heart","rps":100,"rep":%[1]d,"seed":%[1]d},"verdict":"VALID","latencyMs":%s}`+"\n", rep, latency)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, resultsFile), []byte(lines.String()), 0o644))
	writeHistogram(t, filepath.Join(dir, "hdr", "x1.hlog"), map[int64]int64{10: 10_000})
	writeHistogram(t, filepath.Join(dir, "hdr", "x2.hlog"), map[int64]int64{1000: 100})
	set, err := Read(dir)
	require.NoError(t, err)
	c := set.Cells()[0]
	require.Equal(t, 2, c.P99Ms.N)
	require.Nil(t, c.P99Ms.Lo)
	h, err := set.histogram(c)
	require.NoError(t, err)
	require.EqualValues(t, 10_100, h.TotalCount())
	require.InEpsilon(t, 10_000, float64(h.ValueAtQuantile(99)), 0.001)
	require.InEpsilon(t, 1_000_000, float64(h.ValueAtQuantile(99.1)), 0.001)
}

// A latency of half a minute or of an hour is read back as it was written
// (HdrHistogram/HdrHistogram_c#126; the papers print 30,620 ms).
func TestHistogramKeepsSlowRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.hlog")
	writeHistogram(t, path, map[int64]int64{10: 1, 30_620: 1, 40_000: 1, 3_599_000: 1})
	h, err := readHistogram(path)
	require.NoError(t, err)
	require.EqualValues(t, 4, h.TotalCount())
	for percent, ms := range map[float64]float64{50: 30_620, 75: 40_000, 100: 3_599_000} {
		require.InEpsilon(t, 1000*ms, float64(h.ValueAtQuantile(percent)), 0.001)
	}
}

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
