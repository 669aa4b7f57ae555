package analysis

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// cellRuns gives six runs of a cell with one P99 (a fixture).
func cellRuns(scenario, app, policy string, rps, p99 float64) []experiments.Result {
	var runs []experiments.Result
	for rep := 1; rep <= 6; rep++ {
		r := run(policy, rep, p99)
		r.Trial = experiments.Trial{ID: fmt.Sprint(scenario, app, policy, rps, rep), Scenario: scenario, App: app, Backend: "sim", Policy: policy, RPS: rps, Rep: rep}
		runs = append(runs, r)
	}
	return runs
}

func judged(t *testing.T, set Set) map[string]Judgement {
	t.Helper()
	claims, err := LoadClaims()
	require.NoError(t, err)
	byID := map[string]Judgement{}
	for _, j := range Judge(set, claims) {
		byID[j.ID] = j
	}
	return byID
}

// An empty measurement agrees with nothing (spinnaker/kayenta#377).
func TestJudgeNothingIsAVerdictOfItsOwn(t *testing.T) {
	for id, j := range judged(t, Set{}) {
		require.Equal(t, NotComparable, j.Verdict, id)
		require.NotEmpty(t, j.Reason, id)
		require.Nil(t, j.Measured, id)
	}
}

func TestJudgeLatencies(t *testing.T) {
	cases := []struct {
		name               string
		kube, least, heart float64
		verdict            map[string]ClaimVerdict
		reason             string // of heart-pairwise-2
	}{
		{"all within x1.5", 4688, 378, 218,
			map[string]ClaimVerdict{"heart-motivation-1": Reproduced, "heart-pairwise-2": Reproduced, "heart-pairwise-3": Reproduced, "heart-pairwise-1": Reproduced}, "×1.29"},
		{"off, in order", 9000, 600, 100,
			map[string]ClaimVerdict{"heart-motivation-1": Direction, "heart-pairwise-2": Direction, "heart-pairwise-3": Direction, "heart-pairwise-1": Reproduced}, "right order"},
		{"least request lowest", 9000, 90, 600,
			map[string]ClaimVerdict{"heart-motivation-1": Direction, "heart-pairwise-2": NotReproduced, "heart-pairwise-3": NotReproduced, "heart-pairwise-1": Reproduced}, "wrong order against heart-pairwise-3"},
		{"heart worse than default", 100, 293, 150,
			map[string]ClaimVerdict{"heart-motivation-1": NotReproduced, "heart-pairwise-1": NotReproduced, "heart-pairwise-2": Reproduced}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			set := Set{}
			for policy, p99 := range map[string]float64{"kubeproxy": c.kube, "least-request": c.least, "heart": c.heart} {
				set.Results = append(set.Results, cellRuns("LAN", "pair", policy, 100, p99)...)
			}
			js := judged(t, set)
			for id, want := range c.verdict {
				require.Equal(t, want, js[id].Verdict, "%s: %s", id, js[id].Reason)
			}
			require.Contains(t, js["heart-pairwise-2"].Reason, c.reason)
			require.Equal(t, Simulated, js["heart-pairwise-2"].Source)
			require.Equal(t, NotComparable, js["heart-pairwise-5"].Verdict, "the sweep is not whole")
			require.Contains(t, js["heart-pairwise-5"].Reason, "LAN/pair/heart at 150 RPS (sim) was not run")
		})
	}
}

// A loss within ten points of a small published gain is no reproduction.
func TestJudgeSignOfAReduction(t *testing.T) {
	for p99, want := range map[float64]ClaimVerdict{92: Reproduced, 101: NotReproduced, 60: Direction} {
		set := Set{}
		for _, scenario := range []string{"ablation-A", "ablation-B"} {
			for _, rps := range []float64{50, 85, 100} {
				set.Results = append(set.Results, cellRuns(scenario, "pair", "heart", rps, p99)...)
				set.Results = append(set.Results, cellRuns(scenario, "pair", "heart-nofilter", rps, 100)...)
			}
		}
		j := judged(t, set)["heart-ablation-filter-1"]
		require.Equal(t, want, j.Verdict, j.Reason)
		require.InDelta(t, 100-p99, *j.Measured, 1e-9)
	}
}

// A gain that some runs show and others do not is no gain.
func TestJudgeEffectWithinTheNoise(t *testing.T) {
	set := Set{}
	for _, scenario := range []string{"ablation-A", "ablation-B"} {
		for _, rps := range []float64{50, 85, 100} {
			with := cellRuns(scenario, "pair", "heart", rps, 100)
			for i := range with {
				with[i].LatencyMs.P99 += 8 * float64(i%2*2-1)
			}
			with[0].LatencyMs.P99 -= 4
			set.Results = append(set.Results, append(with, cellRuns(scenario, "pair", "heart-nofilter", rps, 100.5)...)...)
		}
	}
	j := judged(t, set)["heart-ablation-filter-1"]
	require.Positive(t, *j.Measured)
	require.Equal(t, NotReproduced, j.Verdict, j.Reason)
	require.Contains(t, j.Reason, "not distinguishable from no effect")
}

// Two latencies whose intervals overlap are in no order.
func TestJudgeOrderWithinTheNoise(t *testing.T) {
	set := Set{}
	for policy, p99 := range map[string]float64{"kubeproxy": 40, "least-request": 41} {
		runs := cellRuns("LAN", "pair", policy, 100, p99)
		for i := range runs {
			runs[i].LatencyMs.P99 += float64(i)
		}
		set.Results = append(set.Results, runs...)
	}
	js := judged(t, set)
	require.Equal(t, NotReproduced, js["heart-pairwise-2"].Verdict)
	set.Results = nil
	for policy, p99 := range map[string]float64{"kubeproxy": 41, "least-request": 40} {
		runs := cellRuns("LAN", "pair", policy, 100, p99)
		for i := range runs {
			runs[i].LatencyMs.P99 += float64(i)
		}
		set.Results = append(set.Results, runs...)
	}
	js = judged(t, set)
	require.Equal(t, NotReproduced, js["heart-pairwise-2"].Verdict)
	require.Contains(t, js["heart-pairwise-2"].Reason, "not distinguishable from heart-motivation-1")
}

func TestJudgeStableRates(t *testing.T) {
	cases := []struct {
		p99      []float64 // at 50, 100, 150, 200 RPS
		from, to float64
		verdict  ClaimVerdict // of the upper end
	}{
		{[]float64{216, 218, 277, 7715}, 50, 150, Direction},
		{[]float64{216, 218, 277, 300}, 50, 200, Reproduced},
		{[]float64{216, 900, 277, 300}, 50, 50, NotReproduced},
		{[]float64{900, 218, 277, 300}, 100, 200, Reproduced},
	}
	for _, c := range cases {
		set := Set{}
		for i, rps := range []float64{50, 100, 150, 200} {
			set.Results = append(set.Results, cellRuns("LAN", "pair", "heart", rps, c.p99[i])...)
		}
		js := judged(t, set)
		require.Equal(t, c.from, *js["heart-pairwise-4"].Measured)
		require.Equal(t, c.to, *js["heart-pairwise-5"].Measured)
		require.Equal(t, c.verdict, js["heart-pairwise-5"].Verdict)
	}
}

func TestJudgeSweepsAndRanks(t *testing.T) {
	p99 := map[string]float64{"default": 300, "pack": 200, "opttraffic": 190, "default+lata": 140, "larp+lata": 104}
	set := Set{}
	for _, scenario := range []string{"ICSOC-A", "ICSOC-B"} {
		for _, app := range []string{"dag", "bookinfo"} {
			for policy, v := range p99 {
				for _, rps := range []float64{10, 20, 30, 40, 50} {
					set.Results = append(set.Results, cellRuns(scenario, app, policy, rps, v)...)
				}
			}
		}
	}
	for _, scenario := range []string{"motivation-A", "motivation-B"} {
		for _, rps := range []float64{50, 100, 200} {
			set.Results = append(set.Results, cellRuns(scenario, "pair-icsoc", "least-request", rps, 40)...)
		}
	}
	js := judged(t, set)
	require.Equal(t, 2.0, *js["lata-placement-independence-1"].Measured)
	require.Equal(t, Reproduced, js["lata-placement-independence-1"].Verdict)
	require.InDelta(t, 100*(1-104./300), *js["lata-overall-2"].Measured, 1e-9)
	require.InDelta(t, (100*(1-104./300)+100*(1-104./200)+100*(1-104./190))/3, *js["lata-overall-1"].Measured, 1e-9)
	require.InDelta(t, 100*(1-104./190), *js["lata-dag-4"].Measured, 1e-9)
	require.Equal(t, Reproduced, js["lata-dag-4"].Verdict)
	// Equal in A and B: an increase of nothing where 33 % was published.
	require.Equal(t, NotReproduced, js["lata-motivation-delay-1"].Verdict)
	require.Equal(t, NotComparable, js["lata-dag-1"].Verdict)
	require.Contains(t, js["lata-dag-1"].Reason, "has no histogram")
}

func TestJudgeGrowthAndWorkedExamples(t *testing.T) {
	set := Set{
		Vectors: map[string]float64{"criticalPathAllLinksMs": 100, "criticalPathFilteredMs": 80.5},
		Scale: []ScalePoint{
			{Policy: "heart", Replicas: 100, Ms: 0.1}, {Policy: "heart", Replicas: 400, Ms: 0.25}, // ^0.66
			{Policy: "lata", Replicas: 100, Ms: 1}, {Policy: "lata", Replicas: 400, Ms: 11}, // ^1.73
		},
	}
	js := judged(t, set)
	require.Equal(t, Reproduced, js["heart-motivation-5"].Verdict)
	require.Equal(t, NotReproduced, js["heart-motivation-6"].Verdict)
	require.Equal(t, Reproduced, js["scheduling-time-1"].Verdict)
	require.Equal(t, 11.0, *js["scheduling-time-2"].Measured)
	require.Contains(t, js["scheduling-time-2"].Reason, "^1.73 from 100 to 400, published ^1.74")
	require.Equal(t, Direction, js["scheduling-time-3"].Verdict, js["scheduling-time-3"].Reason)
}

// OptTraffic is faster up to the 65th of 100 requests, then far slower.
func TestJudgeFasterShare(t *testing.T) {
	dir := t.TempDir()
	set := Set{}
	for policy, valueOf := range map[string]func(i int) int64{
		"larp+lata": func(i int) int64 { return 50_000 + int64(i) },
		"opttraffic": func(i int) int64 {
			if i <= 650 {
				return 20_000 + int64(i)
			}
			return 150_000 + int64(i)
		},
	} {
		h := hdrhistogram.New(1, 3_600_000_000, 3)
		for i := 1; i <= 1000; i++ {
			require.NoError(t, h.RecordValue(valueOf(i)))
		}
		path := filepath.Join(dir, policy+".hlog")
		f, err := os.Create(path)
		require.NoError(t, err)
		w := hdrhistogram.NewHistogramLogWriter(f)
		require.NoError(t, w.OutputIntervalHistogram(h))
		require.NoError(t, f.Close())
		for _, rps := range []float64{10, 20, 30, 40, 50} {
			runs := cellRuns("ICSOC-B", "dag", policy, rps, 1)
			set.Results = append(set.Results, runs...)
			for _, r := range runs {
				set.addHistogram(r.Trial.ID, path)
			}
		}
	}
	j := judged(t, set)["lata-dag-1"]
	require.Equal(t, Reproduced, j.Verdict, j.Reason)
	require.InDelta(t, 65, *j.Measured, 0.5)
}

func TestToleranceEdges(t *testing.T) {
	cases := []struct {
		name                string
		t                   Tolerance
		measured, published float64
		want                bool
	}{
		{"factor above", Tolerance{Factor: 1.5}, 150, 100, true},
		{"factor beyond", Tolerance{Factor: 1.5}, 150.1, 100, false},
		{"factor below", Tolerance{Factor: 1.5}, 66, 100, false},
		{"factor of another sign", Tolerance{Factor: 1.5}, -100, 100, false},
		{"points", Tolerance{Points: 10}, 85.2, 95.2, true},
		{"points beyond", Tolerance{Points: 10}, 85.1, 95.2, false},
		{"equal", Tolerance{}, 2, 2, true},
		{"not equal", Tolerance{}, 3, 2, false},
		{"strictly above", Tolerance{AtLeast: true, Points: 10}, 100, 100, false},
		{"reached", Tolerance{AtLeast: true}, 200, 200, true},
		{"at most", Tolerance{AtMost: true}, 50, 50, true},
	}
	for _, c := range cases {
		require.Equal(t, c.want, c.t.holds(c.measured, c.published), c.name)
	}
}
