package experiments

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed"
	"heartbed/workloads"
)

// sample is the published TC2 run of activescale's test report, decoded from
// its drawing: seconds and replicas. The phases begin at 0, 181, 406, 556 and
// 725 s; the first, from 50 to 200 requests a second, is its warm-up.
var sample = map[string][][2]int{
	"cpu": {{0, 1}, {49, 4}, {201, 6}, {216, 12}, {424, 10}, {439, 9}, {485, 8}, {576, 10}, {591, 16}, {804, 12}, {819, 11},
		{834, 9}, {864, 7}, {879, 6}, {895, 5}, {920, 4}, {950, 3}},
	"activescale": {{0, 1}, {9, 5}, {191, 13}, {414, 10}, {444, 9}, {566, 15}, {581, 18}, {733, 16}, {748, 15}, {778, 10}, {809, 7},
		{834, 4}, {864, 2}, {986, 3}},
}

// samplePlan is the load of the sample, with ten seconds before it.
func samplePlan(rpsPerReplica float64) testbed.Plan {
	const before = 10 * time.Second
	p := testbed.Plan{RPS: 800, Autoscale: &testbed.Autoscale{RPSPerReplica: rpsPerReplica}}
	for _, r := range [][2]float64{{-10, 50}, {0, 200}, {181, 600}, {406, 400}, {556, 800}, {725, 100}} {
		at := before + time.Duration(r[0])*time.Second
		p.Load.Profile = append(p.Load.Profile, workloads.RatePoint{At: workloads.Duration(at), Factor: r[1] / 800})
	}
	p.Timing.Drop = workloads.Duration(before + time.Second)
	p.Timing.Duration = workloads.Duration(1086*time.Second + before)
	return p
}

func samplePoints(method string) (points []testbed.ScalePoint) {
	for _, s := range sample[method] {
		at := time.Duration(s[0])*time.Second + 10*time.Second
		if s[0] == 0 {
			at = 0
		}
		points = append(points, testbed.ScalePoint{At: at, Wanted: s[1], Pods: s[1], Ready: s[1]})
	}
	return points
}

// The coverage formula on the published sample; the figures were computed apart
// from this code.
func TestCoverageOfThePublishedSample(t *testing.T) {
	for _, c := range []struct{ perReplica, cpu, activescale float64 }{{45, 68.6, 91.9}, {50, 84.1, 95.1}, {55, 85.7, 96.0}} {
		for method, want := range map[string]float64{"cpu": c.cpu, "activescale": c.activescale} {
			s := scaling(samplePlan(c.perReplica), samplePoints(method))
			require.InDelta(t, want, s.CoveragePct, 0.05, "%s at %v requests a second a replica", method, c.perReplica)
		}
	}
	s := scaling(samplePlan(50), samplePoints("activescale"))
	require.Equal(t, 10.0, *s.StartSeconds)
	require.Equal(t, 25.0, *s.MaxSeconds, "18 of 16 at 581 s, the rise to 800 was at 556 s")
	require.Equal(t, 169.0, s.PeakSeconds)
	s = scaling(samplePlan(50), samplePoints("cpu"))
	require.Equal(t, 20.0, *s.StartSeconds)
	require.Equal(t, 35.0, *s.MaxSeconds)
}

func TestScalingByHand(t *testing.T) {
	p := testbed.Plan{RPS: 100, Autoscale: &testbed.Autoscale{RPSPerReplica: 10}}
	p.Load.Profile = []workloads.RatePoint{{Factor: 0.2}, {At: seconds(10), Factor: 1}}
	p.Timing.Duration, p.Timing.Drop = seconds(110), seconds(10)
	never := scaling(p, []testbed.ScalePoint{{Ready: 2, Pods: 2}})
	require.Zero(t, never.CoveragePct)
	require.Nil(t, never.StartSeconds)
	require.Nil(t, never.MaxSeconds)
	require.Equal(t, 800.0, never.UnderReplicaSeconds)
	require.Zero(t, never.OverReplicaSeconds)

	lost := scaling(p, []testbed.ScalePoint{{Ready: 2, Pods: 2}, {At: 20 * time.Second, Ready: 0, Pods: 2}})
	require.Zero(t, lost.CoveragePct, "it cannot be negative")
	require.Equal(t, 980.0, lost.UnderReplicaSeconds)

	half := scaling(p, []testbed.ScalePoint{{Ready: 2, Pods: 2}, {At: 30 * time.Second, Ready: 2, Pods: 12}, {At: 60 * time.Second, Ready: 12, Pods: 12}})
	require.Equal(t, 50.0, half.CoveragePct)
	require.Equal(t, 50.0, *half.StartSeconds)
	require.Equal(t, 50.0, *half.MaxSeconds)
	require.Equal(t, 2*80.0, half.OverReplicaSeconds, "pods cost from their creation, more than the need at once or later")
	require.Equal(t, []ReplicasAt{{0, 2, 2, 2}, {10, 10, 2, 2}, {30, 10, 12, 2}, {60, 10, 12, 12}}, half.Replicas)
	require.Nil(t, scaling(testbed.Plan{}, nil))
}

func seconds(n int) workloads.Duration { return workloads.Duration(time.Duration(n) * time.Second) }

func TestSpikeIsForTheSimulator(t *testing.T) {
	s, err := Load("spike")
	require.NoError(t, err)
	_, err = s.Experiment(Selection{}, "netns")
	require.ErrorIs(t, err, ErrInput)
	duration := time.Minute * 3
	e, err := s.Experiment(Selection{Apps: []string{"tc2"}, Duration: &duration}, "sim")
	require.NoError(t, err)
	require.Equal(t, workloads.Duration(duration), e.Trials[0].Plan.Timing.Duration)
	require.Equal(t, 1, e.Trials[0].Plan.Autoscale.Initial, "50 requests a second need one replica")
}
