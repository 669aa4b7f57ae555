package netns

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// used is what node n1 and replica b2 had used at a moment of the run.
type used struct {
	at       time.Duration
	n1, b2   time.Duration // CPU time
	requests float64       // that b2 had answered
}

// An antagonist takes cores of n1 and inflates requests on n2, in bursts of a
// second, and what it does is undone after each. n1 has a loop without end that
// asks for all it can get.
func TestAntagonistsTakeAndGiveBack(t *testing.T) {
	second := workloads.Duration(time.Second)
	p := testbedtest.Plan()
	p.Entry.Gateway = "n2"
	p.App.Server.LimitCores, p.App.Server.Period = 0.8, second/50
	p.Timing.Duration = 6 * second
	p.Control.Period = second / 10
	p.Antagonists = []testbed.Antagonist{
		{Nodes: []string{"n1"}, StealCores: 0.8, BurstMin: second, BurstMax: second, PauseMin: second, PauseMax: second},
		{Nodes: []string{"n2"}, Inflate: 6, BurstMin: second, BurstMax: second, PauseMin: 3 * second / 2, PauseMax: 3 * second / 2},
	}
	s := begin(t, liveBackend(t), p, testbedtest.Table(1, 1))
	busy, err := tc.NewGroup(groupPrefix+s.run+"/1/busy", tc.CPULimit{})
	require.NoError(t, err)
	loop, err := launch(s.nodes[0], s.folder, "busy", busy, nil, "/bin/sh", "-c", "while :; do :; done")
	require.NoError(t, err)
	s.processes = append(s.processes, loop)

	var seen []used
	m, err := s.Run(t.Context(), func(ctx context.Context) error {
		node, err := s.NodeGroups[0].Stats()
		if err != nil {
			return err
		}
		reading, err := s.Scraper.ReadOne(ctx, s.Layout.Replicas[4])
		if err != nil {
			return err
		}
		now := used{at: time.Since(s.Began), n1: node.Usage, b2: time.Duration(reading.CPUSeconds * float64(time.Second))}
		for _, n := range reading.Requests {
			now.requests += n
		}
		seen = append(seen, now)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, m.StepErrors)
	require.Equal(t, "b2", s.Layout.Replicas[4].Name)

	n1, b2 := map[bool]used{}, map[bool]used{} // sums over bursts and over pauses
	for i := 1; i < len(seen); i++ {
		from, to := seen[i-1], seen[i]
		add := func(sums map[bool]used, pause time.Duration) {
			// What is under way when a burst begins or ends belongs to neither.
			const slack = 150 * time.Millisecond
			phase := func(at time.Duration) int { return int(at/(pause+time.Second))*2 + int(at%(pause+time.Second)/pause) }
			if k := phase(from.at); phase(from.at-slack) == k && phase(to.at) == k {
				sum := sums[k%2 == 1]
				sums[k%2 == 1] = used{sum.at + to.at - from.at, sum.n1 + to.n1 - from.n1, sum.b2 + to.b2 - from.b2, sum.requests + to.requests - from.requests}
			}
		}
		add(n1, time.Second)
		add(b2, 3*time.Second/2)
	}
	cores := func(u used) float64 { return float64(u.n1) / float64(u.at) }
	cost := func(u used) float64 { return u.b2.Seconds() / u.requests * 1000 }
	said := fmt.Sprintf("n1 used %.2f cores in bursts of 0.2, %.2f between them; a request to b2 cost %.2f ms and %.2f ms",
		cores(n1[true]), cores(n1[false]), cost(b2[true]), cost(b2[false]))
	t.Log(said)
	require.Less(t, cores(n1[true]), 0.23, said)
	require.Greater(t, cores(n1[false]), 0.3, said)
	require.Greater(t, cost(b2[true]), 5.5, said)
	require.Less(t, cost(b2[false]), 4.0, said)

	before, err := s.NodeGroups[0].Stats()
	require.NoError(t, err)
	time.Sleep(300 * time.Millisecond)
	after, err := s.NodeGroups[0].Stats()
	require.NoError(t, err)
	require.Greater(t, after.Usage-before.Usage, 90*time.Millisecond, "the run ends in a burst, which ends with it")
}
