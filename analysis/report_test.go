package analysis

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// made builds a result whose latencies are lognormal around median ms: a
// fixture of the tests, not a measurement.
func made(scenario, app, policy string, rps float64, rep int, medianMs float64) (experiments.Result, *hdrhistogram.Histogram) {
	random := rand.New(rand.NewPCG(uint64(rep), uint64(rps)))
	h := hdrhistogram.New(1, 3_600_000_000, 3)
	for range 2000 {
		if err := h.RecordValue(int64(1000 * medianMs * math.Exp(0.5*random.NormFloat64()))); err != nil {
			panic(err)
		}
	}
	ms := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1000 }
	gap := 3 * medianMs
	return experiments.Result{
		Trial:      experiments.Trial{ID: fmt.Sprintf("%s-%s-%s-%v-%d", scenario, app, policy, rps, rep), Scenario: scenario, App: app, Backend: "sim", Policy: policy, RPS: rps, Rep: rep, Seed: uint64(rep)},
		Verdict:    experiments.Valid,
		LatencyMs:  &experiments.Latency{Mean: h.Mean() / 1000, P50: ms(50), P90: ms(90), P99: ms(99), P999: ms(99.9), Max: float64(h.Max()) / 1000},
		OfferedRPS: rps, AchievedRPS: rps, Requests: experiments.Requests{Offered: 2000, Answered: 2000},
		CPU:      map[string]experiments.CPUUsage{"a1": {Mean: 0.2, Max: 0.3}, "a2": {Mean: 0.2 + gap/1000, Max: 0.9}},
		CPUGapPp: &gap,
		SharesOverTime: []experiments.ShareAt{
			{AtSeconds: 0, Component: "a", Node: "n1", Share: 0.5}, {AtSeconds: 0, Component: "a", Node: "n2", Share: 0.5},
			{AtSeconds: 30, Component: "a", Node: "n1", Share: 0.8}, {AtSeconds: 30, Component: "a", Node: "n2", Share: 0.2},
		},
		StepSeconds: map[string]float64{"collect": 1e-5, "flow": 2e-5, "total": 3e-5},
	}, h
}

// madeDir writes a results directory with two policies, two rates and reps
// runs each; change may alter results before they are written.
func madeDir(t *testing.T, reps int, change func(*experiments.Result)) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hdr"), 0o755))
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for policy, median := range map[string]float64{"kubeproxy": 40, "heart": 10} {
		for _, rps := range []float64{50, 100} {
			for rep := 1; rep <= reps; rep++ {
				r, h := made("LAN", "pair", policy, rps, rep, median)
				if change != nil {
					change(&r)
				}
				require.NoError(t, enc.Encode(r))
				var hlog bytes.Buffer
				w := hdrhistogram.NewHistogramLogWriter(&hlog)
				require.NoError(t, w.OutputLogFormatVersion())
				require.NoError(t, w.OutputLegend())
				require.NoError(t, w.OutputIntervalHistogram(h))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "hdr", r.Trial.ID+".hlog"), hlog.Bytes(), 0o644))
			}
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, resultsFile), lines.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, scenarioFile), []byte("name: LAN\ntitle: close nodes\nbaseline: kubeproxy\nrepetitions: 10\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, vectorsFile), []byte(`{"criticalPathAllLinksMs": 100, "criticalPathFilteredMs": 80}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, scaleFile),
		[]byte(`{"nodes":5,"components":5,"steps":100,"rows":[{"policy":"heart","replicas":100,"totalMs":0.2},{"policy":"heart","replicas":400,"totalMs":0.3},
		{"policy":"lata","replicas":100,"totalMs":1},{"policy":"lata","replicas":400,"totalMs":11}]}`), 0o644))
	return dir
}

func TestWriteIsWholeAndRepeatable(t *testing.T) {
	dir := madeDir(t, 6, nil)
	first, second := t.TempDir(), t.TempDir()
	summary, err := Write(first, Options{Inputs: []string{dir}})
	require.NoError(t, err)
	_, err = Write(second, Options{Inputs: []string{dir}})
	require.NoError(t, err)

	files := filesOf(t, first)
	require.Equal(t, files, filesOf(t, second), "the same results must give the same bytes")
	for _, name := range []string{
		"summary.json", "report.md", "report.html", "tables/cells.csv", "tables/runs.csv", "tables/claims.csv", "tables/paired.csv",
		"tables/cpu.csv", "tables/shares.csv", "tables/stages.csv", "tables/scale.csv",
		"figures/LAN-pair-sim-p99.svg", "figures/LAN-pair-sim-cdf.svg", "figures/LAN-pair-sim-cpu.svg", "figures/LAN-pair-sim-shares-heart.svg",
		"figures/LAN-pair-sim-stages.svg", "figures/scheduling-time.svg", "figures/claims-latency.svg",
	} {
		require.Contains(t, files, name)
	}
	require.Len(t, summary.Cells, 4)
	require.Len(t, summary.Claims, 99)

	var contract struct {
		Cells []struct {
			Scenario, App, Backend, Policy string
			RPS                            float64
			N, Invalid                     int
			P99Ms                          struct{ Median, Lo, Hi *float64 }
			MeanMs, CPUGapPp               *float64
			Errors                         *int64
		}
		Claims []struct {
			ID, Paper, Unit, Verdict, Reason string
			Published                        *float64
			Measured                         *float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(files["summary.json"]), &contract))
	for _, c := range contract.Cells {
		require.Equal(t, 6, c.N)
		require.NotNil(t, c.P99Ms.Median)
		require.NotNil(t, c.P99Ms.Lo)
		require.NotNil(t, c.MeanMs)
		require.NotNil(t, c.CPUGapPp)
		require.NotNil(t, c.Errors)
	}
	for _, c := range contract.Claims {
		require.NotEmpty(t, c.Reason, c.ID)
		require.NotNil(t, c.Published, c.ID)
		require.Equal(t, c.Verdict == string(NotComparable), c.Measured == nil, c.ID)
	}
}

var update = flag.Bool("update", false, "rewrite the golden files")

// requireGolden compares with a file of testdata; -update rewrites it.
func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	wantLines, gotLines := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(wantLines), len(gotLines)) {
		require.Equal(t, wantLines[i], gotLines[i], "%s:%d; run with -update after looking at the difference", path, i+1)
	}
	require.Len(t, gotLines, len(wantLines), path)
}

func TestReportText(t *testing.T) {
	dir := madeDir(t, 6, func(r *experiments.Result) {
		if r.Trial.Policy == "kubeproxy" && r.Trial.RPS == 100 {
			r.Verdict = experiments.Saturated
		}
	})
	out := t.TempDir()
	_, err := Write(out, Options{Inputs: []string{dir}})
	require.NoError(t, err)
	files := filesOf(t, out)
	requireGolden(t, "report.md", files["report.md"])
	requireGolden(t, "cells.csv", files["tables/cells.csv"])

	c, err := Compare(dir, dir)
	require.NoError(t, err)
	c.A, c.B = "A", "B"
	requireGolden(t, "compare.txt", c.Text())
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, relErr := filepath.Rel(dir, path)
		require.NoError(t, relErr)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return files
}

func TestReportShowsWarningsBeforeConclusions(t *testing.T) {
	dir := madeDir(t, 3, func(r *experiments.Result) {
		if r.Trial.Rep == 1 && r.Trial.Policy == "heart" {
			r.Verdict, r.Reasons = experiments.Invalid, []string{"the generator was <late>"}
		}
	})
	out := t.TempDir()
	_, err := Write(out, Options{Inputs: []string{dir}})
	require.NoError(t, err)
	files := filesOf(t, out)

	html := files["report.html"]
	for _, text := range []string{
		"2 of 12 runs are INVALID", "the generator was &lt;late&gt;", "fewer than 6 valid runs", "n = 2, no interval", "n = 3, no interval",
		`<meta name="viewport"`, "@media print", "prefers-color-scheme: dark", `class="chip simulated"`, "<svg role=",
	} {
		require.True(t, strings.Contains(html, text), "report.html lacks %q", text)
	}
	order := []string{"Read this first", "In short", "Published figures", "LAN · pair", "How to read this"}
	at := -1
	for _, heading := range order {
		next := strings.Index(html, heading)
		require.Greater(t, next, at, "%q comes too early", heading)
		at = next
	}
	require.False(t, strings.Contains(html, "http"), "the report must need no other file or host")
	md := files["report.md"]
	require.Less(t, strings.Index(md, "Read this first"), strings.Index(md, "Published figures"))
}

func TestReportNamesMethodsOfTheUsersOwn(t *testing.T) {
	dir := madeDir(t, 6, func(r *experiments.Result) {
		if r.Trial.Policy == "heart" {
			r.Trial.Policy = "my|own <policy>"
		}
	})
	out := t.TempDir()
	_, err := Write(out, Options{Inputs: []string{dir}})
	require.NoError(t, err)
	files := filesOf(t, out)
	require.True(t, strings.Contains(files["report.html"], "my|own &lt;policy&gt;"))
	require.False(t, strings.Contains(files["report.html"], "own <policy>"))
	require.True(t, strings.Contains(files["report.md"], `my\|own <policy>`))
	require.Contains(t, files["tables/cells.csv"], "my|own <policy>")
	require.Contains(t, files, "figures/LAN-pair-sim-shares-my-own--policy-.svg")
}

func TestWriteRefusesResultsThatCannotBeReadWhole(t *testing.T) {
	dir := madeDir(t, 2, nil)
	path := filepath.Join(dir, resultsFile)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)-40], 0o644))
	out := filepath.Join(t.TempDir(), "out")
	_, err = Write(out, Options{Inputs: []string{dir}})
	require.ErrorIs(t, err, experiments.ErrInput)
	require.ErrorContains(t, err, "results.jsonl: line 8")
	require.ErrorContains(t, err, "truncated")
	require.NoDirExists(t, out)
}
