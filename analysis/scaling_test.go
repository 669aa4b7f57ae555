package analysis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// spikeRun is a run of the spike scenario, whose replicas follow at a delay; a
// negative delay is a run that never scales out.
func spikeRun(policy string, rep int, delay float64) experiments.Result {
	r := run(policy, rep, 200)
	r.Trial.Scenario, r.Trial.App, r.Trial.RPS = "spike", "tc1", 1000
	r.Requests.Offered, r.Errors = 1000, 0
	s := &experiments.Scaling{PeakSeconds: 180, UnderReplicaSeconds: 18 * 180, Replicas: []experiments.ReplicasAt{
		{AtSeconds: 0, Target: 2, Pods: 2, Ready: 2}, {AtSeconds: 60, Target: 20, Pods: 2, Ready: 2},
	}}
	if delay >= 0 {
		late := delay + 10
		s.StartSeconds, s.MaxSeconds = &delay, &late
		s.UnderReplicaSeconds = 18*delay + 9*10
		s.CoveragePct = 100 * (1 - s.UnderReplicaSeconds/(18*180))
		s.Replicas = append(s.Replicas,
			experiments.ReplicasAt{AtSeconds: 60 + delay, Target: 20, Pods: 20, Ready: 11}, experiments.ReplicasAt{AtSeconds: 70 + delay, Target: 20, Pods: 20, Ready: 20})
	} else {
		r.Errors, r.Verdict = 500, experiments.Saturated
	}
	r.Scaling = s
	return r
}

func spikeSet() Set {
	var set Set
	for rep := 1; rep <= 8; rep++ {
		set.Results = append(set.Results, spikeRun("activescale", rep, float64(10+rep)))
		cpu := float64(30 + 2*rep)
		if rep > 5 {
			cpu = -1
		}
		set.Results = append(set.Results, spikeRun("cpu", rep, cpu))
	}
	return set
}

func TestCellScaling(t *testing.T) {
	cells := map[string]Cell{}
	for _, c := range spikeSet().Cells() {
		cells[c.Policy] = c
	}
	push, cpu := *cells["activescale"].Scaling, *cells["cpu"].Scaling
	require.Equal(t, Delay{Min: 11, Median: 14.5, Max: 18, N: 8}, push.Start)
	require.InDelta(t, 100*(1-(18*14.5+90)/3240), push.CoveragePct.Median, 1e-9)
	require.Zero(t, push.Zero)
	require.Equal(t, Delay{Min: 32, Median: 39, Max: 180, Never: 3, N: 8}, cpu.Start, "a run that never starts had 180 s")
	require.Equal(t, 3, cpu.Zero)
	require.Equal(t, 38.0, *metrics["coverageZero"](cells["cpu"])+0.5, "percent of the runs")
	require.Equal(t, "39 (32 to never), 3 never", cpu.Start.text())
	require.Equal(t, "never", Delay{Min: 180, Median: 180, Max: 180, Never: 2, N: 2}.text())
	require.Nil(t, newCell(Key{}, []experiments.Result{run("cpu", 1, 5)}).Scaling)
}

func TestRunsAreComparedInPairs(t *testing.T) {
	l := newLabs(spikeSet())[0]
	measure := func(form Form, take string) float64 {
		t.Helper()
		m, err := l.measure(Measure{
			Form: form, Take: take,
			Of:      Selector{Scenario: OneOrMore[string]{"spike"}, App: OneOrMore[string]{"tc1"}, Policy: OneOrMore[string]{"activescale"}, RPS: OneOrMore[float64]{1000}},
			Against: &Selector{Policy: OneOrMore[string]{"cpu"}},
		})
		require.NoError(t, err)
		return m.value
	}
	require.Equal(t, 100.0, measure(FormBetterRuns, ""))
	require.Equal(t, 21.0, measure(FormLead, "min"))
	require.Equal(t, 25.0, measure(FormLead, "max"), "runs in which the rival never starts have no lead")
}

func TestReplicasOverTimeAreMedians(t *testing.T) {
	runs := [][]experiments.ReplicasAt{
		{{AtSeconds: 0, Ready: 2}, {AtSeconds: 10, Ready: 8}},
		{{AtSeconds: 0, Ready: 2}, {AtSeconds: 12.5, Ready: 4}},
		{{AtSeconds: 0, Ready: 2}, {AtSeconds: 20, Ready: 20}},
	}
	points := overTime(runs, func(r experiments.ReplicasAt) float64 { return float64(r.Ready) })
	at := func(x float64) (y float64) {
		for _, p := range points {
			if p.x <= x {
				y = p.y
			}
		}
		return y
	}
	require.Equal(t, []float64{2, 2, 4, 8}, []float64{at(0), at(12), at(13), at(20)})
}

func TestReportOfScaledReplicas(t *testing.T) {
	out := t.TempDir()
	_, err := WriteSet(out, spikeSet(), Options{})
	require.NoError(t, err)
	files := filesOf(t, out)
	requireGolden(t, "scaling.csv", files["tables/scaling.csv"])
	require.Contains(t, files, "figures/spike-tc1-sim-replicas.svg")
	require.Contains(t, files["report.md"], "| activescale | **89.2** | 87.2 to 91.1 | 14 (11 to 18) | 24 (21 to 28) | 351 | 0 | 0 | 200 |")
	require.Contains(t, files["report.html"], "39 (32 to never), 3 never")
}
