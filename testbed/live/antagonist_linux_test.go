package live

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// Whatever bursts come together, the kernel takes the quotas that are left, in
// the order in which they are set; also where node and replica have the same
// quota, which is no whole number of microseconds.
func TestBurstsAddUp(t *testing.T) {
	testbedtest.Require(t, "netns", canGroup())
	for _, cores := range []float64{1, 1.0 / 3} {
		t.Run(fmt.Sprintf("%.2g cores", cores), func(t *testing.T) {
			p := testbedtest.Plan()
			p.Nodes[0].Cores = cores
			p.App.Server.LimitCores, p.App.Server.Period = 1.0/3, workloads.Duration(20*time.Millisecond)
			p.App.Server.Burst = workloads.Duration(time.Millisecond)
			for _, steal := range []float64{0.25, 0.375, 5} {
				p.Antagonists = append(p.Antagonists, testbed.Antagonist{
					Nodes: []string{"n1"}, StealCores: steal, BurstMin: 1, BurstMax: 1, PauseMin: 1, PauseMax: 1,
				})
			}
			s := groups(t, p)
			d := disturber{Session: s, bursts: p.Bursts(), now: []disturbance{{cores, 1}, {1, 1}}}
			for _, c := range []struct {
				flip   int
				stolen float64
			}{{0, 0.25}, {1, 0.625}, {2, 5.625}, {1, 5.25}, {0, 5}, {2, 0}, {1, 0.375}, {0, 0.625}, {1, 0.25}} {
				d.bursts[c.flip].Active = !d.bursts[c.flip].Active
				require.NoError(t, d.disturb(t.Context(), 0))
				require.InDelta(t, max(cores-c.stolen, leastCores), d.now[0].cores, 1e-9)
			}
			require.NoError(t, d.end(t.Context()))
			require.Equal(t, []disturbance{{cores, 1}, {1, 1}}, d.now)
		})
	}
}

// groups makes the CPU groups of a plan, and nothing else.
func groups(t *testing.T, p testbed.Plan) *Session {
	t.Helper()
	s := &Session{Layout: Layout{Plan: p, Topology: p.Topology()}}
	root := fmt.Sprintf("heartbed-test-%d", os.Getpid())
	top, err := tc.NewGroup(root, tc.CPULimit{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, top.Remove()) })
	at := s.Layout.Topology.NodeIndex()
	for i, n := range p.Nodes {
		g, err := tc.NewGroup(fmt.Sprintf("%s/%d", root, i+1), s.Layout.NodeLimit(n.Cores))
		require.NoError(t, err)
		s.Layout.Nodes, s.NodeGroups = append(s.Layout.Nodes, Node{Node: n}), append(s.NodeGroups, g)
	}
	for k, r := range s.Layout.Topology.Replicas {
		r := Replica{Replica: r, On: at[r.Node]}
		g, err := tc.NewGroup(fmt.Sprintf("%s/%d/%d", root, r.On+1, k+1), s.Layout.Limit(r))
		require.NoError(t, err)
		s.Layout.Replicas, s.Groups = append(s.Layout.Replicas, r), append(s.Groups, g)
	}
	return s
}

// canGroup says whether CPU groups can be made here.
func canGroup() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("CPU groups need root: %w", errors.ErrUnsupported)
	}
	return nil
}
