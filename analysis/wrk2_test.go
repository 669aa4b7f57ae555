package analysis

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

func TestParseSpan(t *testing.T) {
	cases := []struct {
		text string
		ms   float64
		ok   bool
	}{
		{"850.00us", 0.85, true}, {"1.25ms", 1.25, true}, {"2.01s", 2010, true}, {"3m", 180_000, true}, {"1.50h", 5_400_000, true}, {"0.00us", 0, true},
		{"nanus", 0, false}, {"-nanms", 0, false}, {"infs", 0, false}, {"12", 0, false}, {"ms", 0, false}, {"", 0, false},
	}
	for _, c := range cases {
		ms, ok := parseSpan(c.text)
		require.Equal(t, c.ok, ok, c.text)
		require.InDelta(t, c.ms, ms, 1e-9, c.text)
	}
}

func fixture(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/wrk2/" + name)
	require.NoError(t, err)
	return string(data)
}

func TestParseWrk2(t *testing.T) {
	parse := func(text string) []wrk2Run {
		runs, err := parseWrk2(strings.NewReader(text))
		require.NoError(t, err)
		return runs
	}
	t.Run("one run", func(t *testing.T) {
		runs := parse(fixture(t, "slow/run-1/result10_1.txt"))
		require.Len(t, runs, 1)
		r := runs[0]
		require.Empty(t, r.faults())
		require.Equal(t, 30*time.Second, r.duration)
		require.Equal(t, []float64{80, 190, 78, 120, 160, 180, 10}, []float64{r.meanMs, r.maxMs, r.percentile(50), r.percentile(90), r.percentile(99), r.percentile(99.9), r.achieved})
		require.Equal(t, int64(300), r.requests)
	})
	t.Run("a percentile that is not printed comes from the spectrum", func(t *testing.T) {
		text := strings.Replace(fixture(t, "slow/run-1/result10_1.txt"), " 99.000%   160.00ms\n", "", 1)
		// The first line at or above 0.99 is that of 0.992188.
		require.InDelta(t, 168, parse(text)[0].percentile(99), 1e-9)
	})
	t.Run("uncorrected latencies are left out", func(t *testing.T) {
		r := parse(fixture(t, "slow/run-1/result10_2.txt"))[0]
		require.Equal(t, 50.0, r.meanMs)
		require.Equal(t, 92.0, r.percentile(99))
		require.True(t, r.sent)
	})
	t.Run("errors", func(t *testing.T) {
		r := parse(fixture(t, "slow/run-2/result10_2.txt"))[0]
		require.Equal(t, []int64{3, 2, 4}, []int64{r.socket, r.timeouts, r.failed})
	})
	t.Run("two runs and seconds", func(t *testing.T) {
		runs := parse(fixture(t, "fast/run-1/result12.5.txt"))
		require.Len(t, runs, 2)
		require.Equal(t, 4000.0, runs[0].percentile(99))
		require.Equal(t, 14.0, runs[1].percentile(99))
		require.Equal(t, 30, runs[1].line)
	})
	t.Run("a run that starts on the line where another was cut off", func(t *testing.T) {
		whole := fixture(t, "slow/run-1/result10_1.txt")
		runs := parse(whole[:strings.Index(whole, "#[Mean")+20] + whole)
		require.Len(t, runs, 2)
		require.NotEmpty(t, runs[0].faults())
		require.Empty(t, runs[1].faults())
	})
	t.Run("windows line ends", func(t *testing.T) {
		runs := parse(strings.ReplaceAll(fixture(t, "slow/run-1/result10_1.txt"), "\n", "\r\n"))
		require.Empty(t, runs[0].faults())
	})
	t.Run("truncated", func(t *testing.T) {
		require.Contains(t, strings.Join(parse(fixture(t, "fast/run-2/result12.5.txt"))[0].faults(), "; "), "truncated")
	})
	t.Run("not a number", func(t *testing.T) {
		require.Contains(t, strings.Join(parse(fixture(t, "fast/run-3/result12.5.txt"))[0].faults(), "; "), "not a number")
	})
	// What generators that were themselves the bottleneck printed
	// (giltene/wrk2#117, giltene/wrk2#138, the-benchmarker/web-frameworks#9775).
	t.Run("figures that cannot be", func(t *testing.T) {
		whole := fixture(t, "slow/run-1/result10_1.txt")
		for _, c := range []struct{ old, new, fault string }{
			{"#[Mean    =       80.000", "#[Mean    =      161.700", "the mean of 162 ms is above the P99 of 160 ms"},
			{"#[Mean    =       80.000", "#[Mean    =      999.000", "the mean of 999 ms is above the highest latency of 190 ms"},
			{"#[Mean    =       80.000", "#[Mean    =         -nan", "the mean latency is not a number"},
			{" 99.000%   160.00ms", " 99.000%    60.00ms", "the percentiles do not rise"},
			{" 50.000%   78.00ms", " 50.000%   -5.00us", "the percentiles do not rise"},
			{"Requests/sec:     10.00", "Requests/sec:      -nan", "the achieved rate is not a number"},
		} {
			require.Contains(t, whole, c.old)
			faults := strings.Join(parse(strings.Replace(whole, c.old, c.new, 1))[0].faults(), "; ")
			require.Contains(t, faults, c.fault)
		}
	})
	t.Run("no log", func(t *testing.T) { require.Empty(t, parse(fixture(t, "fast/notes.txt"))) })
}

// Whatever a log holds, its runs make results that JSON can carry and that are
// INVALID or in order.
func FuzzParseWrk2(f *testing.F) {
	for _, name := range []string{"slow/run-1/result10_1.txt", "slow/run-1/result10_2.txt", "slow/run-2/result10_2.txt", "fast/run-1/result12.5.txt", "fast/run-2/result12.5.txt", "fast/run-3/result12.5.txt"} {
		data, err := os.ReadFile("testdata/wrk2/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("Running 1e999s test @ x\n 99.000% 1e308h\n#[Mean = 1e400, x\nRequests/sec: inf\n")
	f.Fuzz(func(t *testing.T, text string) {
		runs, err := parseWrk2(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range runs {
			r := (&Import{}).result(placed{path: "x", rps: 10, run: run, policy: "p", app: "a", scenario: "s", id: "1"})
			if _, err := json.Marshal(r); err != nil {
				t.Fatalf("result that JSON cannot carry: %v", err)
			}
			if r.Verdict == experiments.Invalid {
				continue
			}
			l := *r.LatencyMs
			if l.P50 > l.P99 || l.P99 > l.P999 || math.IsNaN(l.Mean) || r.Errors < 0 {
				t.Fatalf("accepted %+v", r)
			}
		}
	})
}
