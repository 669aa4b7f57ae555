package experiments

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"heartbed/testbed"
	"heartbed/testbed/sim"
)

// mine is a small scenario: 12 trials of 2 methods of its own and one policy.
func mine(t *testing.T, sel Selection) *Experiment {
	t.Helper()
	s, err := LoadFile("testdata/valid-mine.yaml")
	require.NoError(t, err)
	e, err := s.Experiment(sel, "sim")
	require.NoError(t, err)
	return e
}

func run(t *testing.T, e *Experiment, o Options) Outcome {
	t.Helper()
	out, err := e.Run(t.Context(), sim.Backend{}, o)
	require.NoError(t, err)
	return out
}

func readResultFile(t *testing.T, dir string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, resultsFile))
	require.NoError(t, err)
	return string(raw)
}

// The same seed gives the same bytes, however many workers there are.
func TestRunIsDeterministic(t *testing.T) {
	one, four := t.TempDir(), t.TempDir()
	e := mine(t, Selection{})
	out := run(t, e, Options{Dir: one, Workers: 1})
	require.Len(t, out.Results, 12)
	require.Zero(t, out.Failed)
	run(t, e, Options{Dir: four, Workers: 4})
	require.Equal(t, readResultFile(t, one), readResultFile(t, four))
	for i, r := range out.Results {
		require.Equal(t, e.Trials[i].Trial, r.Trial, "results are in the order of the trials")
		require.Equal(t, Valid, r.Verdict, "%v: %v", r.Trial, r.Reasons)
		hlog := filepath.Join(hdrFolder, r.Trial.ID+".hlog")
		a, err := os.ReadFile(filepath.Join(one, hlog))
		require.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(four, hlog))
		require.NoError(t, err)
		require.Equal(t, a, b)
	}
	spec, err := LoadFile(filepath.Join(one, scenarioFile))
	require.NoError(t, err)
	require.Equal(t, e.Scenario, spec, "scenario.yaml says what was run")
	var lines bytes.Buffer
	require.NoError(t, filepath.WalkDir(one, func(path string, d os.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), ".") {
			lines.WriteString(path)
		}
		return err
	}))
	require.Empty(t, lines.String(), "no temporary file is left")
}

func TestResultsAreFilled(t *testing.T) {
	now := time.Unix(0, 0)
	clock := func() time.Time { now = now.Add(time.Millisecond); return now }
	e := mine(t, Selection{Methods: []string{"heart"}, RPS: []float64{40}, Repetitions: 1})
	out := run(t, e, Options{Dir: t.TempDir(), Now: clock})
	r := out.Results[0]
	require.InDelta(t, 40, r.OfferedRPS, 8)
	require.Equal(t, r.Requests.Offered, r.Requests.Answered+r.Requests.Failed+r.Requests.TimedOut+r.Requests.CutOff+r.Requests.Unsent)
	require.Greater(t, r.LatencyMs.P99, r.LatencyMs.P50)
	require.Len(t, r.CPU, 5, "the gateway has no limit to be measured against")
	require.Positive(t, *r.CPUGapPp)
	require.Positive(t, *r.CPUGapWindowPp)
	require.Positive(t, r.Steps)
	for _, stage := range []string{"collect", "predict", "filter", "flow", "apply", "total"} {
		require.Containsf(t, r.StepSeconds, stage, "the stages of a step")
	}
	require.Contains(t, r.Warnings, "rttMs: n1-n3 not measured, the largest measured value (7 ms) stands in")
	sums := map[string]float64{}
	for _, s := range r.SharesOverTime {
		sums[s.Component] += s.Share
	}
	require.InDelta(t, sums["front"], sums["cart"], 1e-9, "each table shares out all of a component's requests")
	require.InDelta(t, 1, sums["front"]/float64(r.Steps+1), 1e-9)
}

// A run that was stopped, by Ctrl-C or by a power failure, goes on where it
// was and ends with the same bytes.
func TestResume(t *testing.T) {
	whole := t.TempDir()
	e := mine(t, Selection{})
	run(t, e, Options{Dir: whole, Workers: 2})
	want := readResultFile(t, whole)
	lines := strings.SplitAfter(want, "\n")

	t.Run("interrupted", func(t *testing.T) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		out, err := e.Run(ctx, sim.Backend{}, Options{Dir: dir, Workers: 2, OnResult: func(Result, bool) {
			if told++; told == 3 {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled)
		require.GreaterOrEqual(t, len(out.Results), 3)
		require.Less(t, len(out.Results), 12)
		require.Equal(t, len(out.Results), strings.Count(readResultFile(t, dir), "\n"), "what has ended is kept")
		again := run(t, e, Options{Dir: dir, Workers: 2})
		require.Equal(t, len(out.Results), again.Resumed)
		require.Equal(t, want, readResultFile(t, dir))
	})
	damaged := func(t *testing.T, content string) (string, Outcome) {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(filepath.Join(dir, hdrFolder), os.DirFS(filepath.Join(whole, hdrFolder))))
		require.NoError(t, os.WriteFile(filepath.Join(dir, resultsFile), []byte(content), 0o600))
		return dir, run(t, e, Options{Dir: dir, Workers: 2})
	}
	t.Run("truncated", func(t *testing.T) {
		dir, out := damaged(t, strings.Join(lines[:5], "")+lines[5][:100])
		require.Equal(t, 5, out.Resumed)
		require.Len(t, out.Warnings, 1)
		require.Contains(t, out.Warnings[0], "line 6: last line is truncated")
		require.Equal(t, want, readResultFile(t, dir))
	})
	t.Run("out of order", func(t *testing.T) {
		dir, out := damaged(t, lines[7]+lines[2])
		require.Equal(t, 2, out.Resumed)
		require.Equal(t, want, readResultFile(t, dir))
	})
	t.Run("histogram lost", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, resultsFile), []byte(lines[0]), 0o600))
		out := run(t, e, Options{Dir: dir, Workers: 2})
		require.Zero(t, out.Resumed)
		require.Contains(t, out.Warnings[0], e.Trials[0].ID+".hlog: it is run again")
		require.Equal(t, want, readResultFile(t, dir))
	})
	t.Run("complete", func(t *testing.T) {
		out := run(t, e, Options{Dir: whole, OnResult: func(_ Result, resumed bool) { require.True(t, resumed) }})
		require.Equal(t, 12, out.Resumed)
		require.Equal(t, want, readResultFile(t, whole))
	})
	t.Run("with one more method", func(t *testing.T) {
		out := run(t, mine(t, Selection{Methods: []string{"roundrobin"}, RPS: []float64{5}}), Options{Dir: whole})
		require.Len(t, out.Results, 2)
		require.True(t, strings.HasPrefix(readResultFile(t, whole), want), "the results so far stay")
	})
}

// Results that cannot be continued are refused and left alone.
func TestRunRefusesForeignResults(t *testing.T) {
	dir := t.TempDir()
	e := mine(t, Selection{Repetitions: 1})
	run(t, e, Options{Dir: dir})
	good := readResultFile(t, dir)
	seed, shorter := uint64(8), 15*time.Second
	other, err := Load("LAN")
	require.NoError(t, err)
	lan, err := other.Experiment(Selection{}, "sim")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		content    string
		experiment *Experiment
		want       string
	}{
		"not JSON":         {"hello\n" + good, e, `line 1: found "hello\n", expected a result`},
		"other JSON":       {good + "{}\n", e, `line 7: found trial id "" with verdict ""`},
		"twice":            {good + good[:strings.Index(good, "\n")+1], e, "is there twice"},
		"another seed":     {good, mine(t, Selection{Seed: &seed}), "measured with other settings"},
		"a shorter run":    {good, mine(t, Selection{Duration: &shorter}), "measured with other settings"},
		"another scenario": {good, lan, "of scenario mine on sim, measured with other settings"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, resultsFile), []byte(c.content), 0o600))
			_, err := c.experiment.Run(t.Context(), sim.Backend{}, Options{Dir: dir})
			require.ErrorIs(t, err, ErrInput)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.content, readResultFile(t, dir))
		})
	}
}

// flaky is a place where one policy cannot be stood up while broken is set.
type flaky struct {
	sim.Backend
	broken bool
}

func (f *flaky) Start(ctx context.Context, p testbed.Plan) (testbed.Session, error) {
	if f.broken && p.Network.Connections == 100 { // the method "wide"
		return nil, errors.New("no more addresses")
	}
	return f.Backend.Start(ctx, p)
}

func TestFailedTrialIsAResultAndRunAgain(t *testing.T) {
	dir := t.TempDir()
	e := mine(t, Selection{Repetitions: 1})
	out, err := e.Run(t.Context(), &flaky{broken: true}, Options{Dir: dir})
	require.NoError(t, err)
	require.Equal(t, 2, out.Failed)
	require.ErrorContains(t, out.Failure(), "2 of 6 trials failed")
	require.Contains(t, readResultFile(t, dir), `"verdict":"INVALID","error":"start: no more addresses"`)
	out, err = e.Run(t.Context(), &flaky{}, Options{Dir: dir})
	require.NoError(t, err)
	require.Equal(t, 4, out.Resumed)
	require.NoError(t, out.Failure())
	whole := t.TempDir()
	run(t, e, Options{Dir: whole})
	require.Equal(t, readResultFile(t, whole), readResultFile(t, dir))
}

// A threshold on what was not measured is missed (spinnaker/kayenta#799).
func TestThresholds(t *testing.T) {
	s, err := LoadFile("testdata/valid-mine.yaml")
	require.NoError(t, err)
	p99, mean := 120.0, 30.0
	results := []Result{
		{Trial: Trial{App: "shop", Policy: "heart", RPS: 40}, Verdict: Valid, LatencyMs: &Latency{P99: 100, Mean: mean}, Errors: 3},
		{Trial: Trial{App: "shop", Policy: "heart", RPS: 40}, Verdict: Valid, LatencyMs: &Latency{P99: 140, Mean: mean}},
		{Trial: Trial{App: "shop", Policy: "heart", RPS: 40}, Verdict: Invalid, LatencyMs: &Latency{P99: 1e6}},
		{Trial: Trial{App: "shop", Policy: "lata", RPS: 40}, Verdict: Valid, LatencyMs: &Latency{P99: 1e6}},
	}
	for _, c := range []struct {
		metric string
		max    float64
		want   string // empty = holds
	}{
		{"p99Ms", p99, ""},
		{"p99Ms", p99 - 1, "shop heart at 40 RPS: p99Ms is 120 (median of 2), expected at most 119"},
		{"meanMs", mean, ""},
		{"errors", 1, "shop heart at 40 RPS: errors is 1.5 (median of 2), expected at most 1"},
		{"cpuGapPp", 5, "shop heart at 40 RPS: cpuGapPp was not measured, expected at most 5"},
	} {
		s.Thresholds = []Threshold{{App: "shop", Method: "heart", RPS: 40, Metric: c.metric, Max: c.max}}
		missed := s.missed(results)
		if c.want == "" {
			require.Empty(t, missed)
		} else {
			require.Equal(t, []string{c.want}, missed)
		}
	}
}
