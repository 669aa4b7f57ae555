package analysis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

func TestPlaceOf(t *testing.T) {
	cases := []struct {
		pattern, path string
		want          placed
		ok            bool
	}{
		{DefaultWrk2Pattern, "lata/run-3/result10_1.txt", placed{policy: "lata", rep: 3, rps: 10, phase: "1"}, true},
		{DefaultWrk2Pattern, "lata/run-3/result10.txt", placed{policy: "lata", rep: 3, rps: 10}, true},
		{DefaultWrk2Pattern, "lata/run-3/result12.5.txt", placed{policy: "lata", rep: 3, rps: 12.5}, true},
		{DefaultWrk2Pattern, "x/lata/run-3/result10.txt", placed{}, false},
		{DefaultWrk2Pattern, "lata/run-x/result10.txt", placed{}, false},
		{DefaultWrk2Pattern, "lata/run-1/result0.txt", placed{}, false},
		{"{scenario}/{app}/{policy}_{phase}-{rps}.{run}", "B/dag/default_2-40.7", placed{scenario: "B", app: "dag", policy: "default", phase: "2", rps: 40, rep: 7}, true},
		{"{policy}+(x)/{rps}", "a+(x)/5", placed{policy: "a", rps: 5}, true}, // signs of the pattern stand for themselves
	}
	for _, c := range cases {
		re, err := compilePattern(c.pattern)
		require.NoError(t, err)
		got, ok := placeOf(re, c.path)
		require.Equal(t, c.ok, ok, c.path)
		if ok {
			c.want.path = c.path
			require.Equal(t, c.want, got)
		}
	}
}

func TestCompilePatternNamesEveryFault(t *testing.T) {
	_, err := compilePattern("{polcy}/{rep}/{rep}")
	for _, want := range []string{"{polcy}", "{rep} twice", "no {policy}", "no {rps}"} {
		require.ErrorContains(t, err, want)
	}
	_, err = ImportWrk2(t.TempDir(), ImportOptions{Pattern: "x"})
	require.ErrorIs(t, err, experiments.ErrInput)
}

func TestImportWrk2(t *testing.T) {
	im, err := ImportWrk2("testdata/wrk2", ImportOptions{Scenario: "S", App: "dag", Methods: map[string]string{"slow_2": "lata"}})
	require.NoError(t, err)
	require.Equal(t, []string{"lata", "fast", "slow_1"}, im.Log.Methods)
	require.Equal(t, 9, im.Log.Files)
	require.Equal(t, 9, im.Log.Runs)
	problems := strings.Join(im.Log.Problems, "\n")
	for _, want := range []string{
		"fast/notes.txt: does not match", "fast/run-2/result12.5.txt:1: the log is truncated", "fast/run-3/result12.5.txt:1: the mean latency is not a number",
		"fast/run-4/result12.5.txt:1: achieved 3333.0 RPS", "fast/run-5/result12.5.txt: is no wrk2 log",
	} {
		require.Contains(t, problems, want)
	}

	cells := map[string]Cell{}
	for _, c := range (Set{Results: im.Results}).Cells() {
		require.Equal(t, Measured, c.Source)
		require.Empty(t, c.Warnings)
		cells[c.Policy] = c
	}
	require.Equal(t, 163.0, cells["slow_1"].P99Ms.Median)
	require.Equal(t, 92.5, cells["lata"].P99Ms.Median)
	require.Equal(t, int64(7), cells["lata"].Errors)
	// Two runs of one file, one of them saturated; three that cannot be used.
	require.Equal(t, []int{2, 1, 3}, []int{cells["fast"].N, cells["fast"].Saturated, cells["fast"].Invalid})

	out := t.TempDir()
	require.NoError(t, im.Write(out))
	summary, err := Write(out, Options{})
	require.NoError(t, err)
	require.Contains(t, strings.Join(summary.Warnings, "\n"), "import: fast/notes.txt")
	html, err := os.ReadFile(filepath.Join(out, "report.html"))
	require.NoError(t, err)
	require.True(t, strings.Contains(string(html), `class="chip measured"`))
}

func TestImportWrk2SaysWhyNothingCouldBeRead(t *testing.T) {
	dir := t.TempDir()
	_, err := ImportWrk2(dir, ImportOptions{})
	require.ErrorIs(t, err, experiments.ErrInput)
	require.ErrorContains(t, err, "holds no file")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "log.txt"), []byte("hello"), 0o644))
	_, err = ImportWrk2(dir, ImportOptions{})
	require.ErrorContains(t, err, "for example log.txt")
	_, err = ImportWrk2(filepath.Join(dir, "nowhere"), ImportOptions{})
	require.ErrorIs(t, err, experiments.ErrInput)
}
