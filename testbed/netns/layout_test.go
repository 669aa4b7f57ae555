package netns

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

func TestLayoutDealsAddresses(t *testing.T) {
	l, err := newLayout(testbedtest.Plan())
	require.NoError(t, err)
	used := map[netip.Addr]bool{controlAddr: true, clientAddr: true}
	for _, n := range l.Nodes {
		for _, a := range append(n.Addrs, n.Addr) {
			require.False(t, used[a], "%v is given twice", a)
			used[a] = true
		}
	}
	require.Len(t, used, 2+2+5, "two nodes, four replicas and the gateway")
	require.Equal(t, "gateway", l.Entries()[0].Name)

	direct := testbedtest.Plan()
	direct.Entry.Gateway = ""
	l, err = newLayout(direct)
	require.NoError(t, err)
	require.Len(t, l.Entries(), 2, "clients connect to the replicas of the entry component")
}

// Delays are round trips: the sidecars at both ends in both directions come on
// top, also between replicas of one node.
func TestRoundTrips(t *testing.T) {
	p := testbedtest.Plan()
	p.Network = testbed.Network{Sidecar: workloads.Duration(time.Millisecond), SidecarScaled: true, Jitter: workloads.Duration(time.Second)}
	p.Nodes[1].Slowness = 3
	p.Entry.ClientRTT = workloads.Duration(4 * time.Millisecond)
	l, err := newLayout(p)
	require.NoError(t, err)
	require.Equal(t, 18*time.Millisecond, l.RoundTrip(0, 1))
	require.Equal(t, l.RoundTrip(0, 1), l.RoundTrip(1, 0))
	require.Equal(t, 12*time.Millisecond, l.RoundTrip(1, 1))
	require.Equal(t, 6*time.Millisecond, l.ClientRoundTrip(0))
	require.True(t, l.ShapesItself())

	links := l.LinksOf(0)
	require.Len(t, links, 1+4+3, "the load generator, itself with three replicas, the other with two")
	require.Equal(t, 18*time.Millisecond, links[l.Nodes[1].Addrs[1]].RTT)
	require.Equal(t, time.Second, links[l.Nodes[1].Addr].Jitter)
	require.Zero(t, links[clientAddr].Jitter, "it is between replicas")
	require.NotContains(t, links, controlAddr, "the controller is not part of what is measured")
	require.Equal(t, tc.Link{RTT: 10 * time.Millisecond}, l.ClientLinks()[l.Nodes[1].Addr])

	plain, err := newLayout(testbedtest.Plan())
	require.NoError(t, err)
	require.False(t, plain.ShapesItself())
	require.Len(t, plain.LinksOf(0), 3, "links without delay are left alone")
	plain.Plan.Network.Jitter = 1
	require.True(t, plain.ShapesItself(), "jitter is also between replicas of a node")
	require.Len(t, plain.LinksOf(0), 4+3)
}

func TestLayoutRefuses(t *testing.T) {
	p := testbedtest.Plan()
	p.Antagonists = []testbed.Antagonist{{Nodes: []string{"n9"}, StealCores: 1}}
	p.Load.Schedule = "closed"
	_, err := newLayout(p)
	require.ErrorContains(t, err, `antagonist 1: found node "n9"`)
	require.ErrorContains(t, err, "antagonist 1: found bursts of 0s to 0s")
	require.ErrorContains(t, err, `found "closed"`, "all faults at once")

	crowded := testbedtest.Plan()
	for range maxReplicas {
		crowded.Replicas = append(crowded.Replicas, crowded.Replicas[0])
		crowded.Replicas[len(crowded.Replicas)-1].Name += string(rune('A' + len(crowded.Replicas)))
	}
	_, err = newLayout(crowded)
	require.ErrorContains(t, err, "node n1: found more than 250 replicas")
}
