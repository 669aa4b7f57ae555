package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// What is added is what the cluster lacks, never less than nothing; what is
// measured becomes the topology's, and only what is off becomes a note.
func TestWaysOfACluster(t *testing.T) {
	const ms = time.Millisecond
	p := testbedtest.Plan()
	p.Network.Sidecar = workloads.Duration(ms)
	s := &session{Session: live.Session{Layout: live.Layout{Plan: p, Topology: p.Topology()}}}
	for _, n := range p.Nodes {
		s.Layout.Nodes = append(s.Layout.Nodes, live.Node{Node: n})
	}
	s.ways = []way{
		{from: "load generator", to: "n1", agent: 1, at: 0, spec: 2 * ms, measured: 5 * ms},
		{from: "load generator", to: "n2", agent: 1, at: 1, spec: 2 * ms, measured: ms / 2},
		{from: "n1", to: "n2", agent: firstNode, at: 1, spec: 14 * ms, measured: 4 * ms},
	}
	between, toClient := s.lacks()
	require.Equal(t, [][]time.Duration{{4 * ms, 10 * ms}, {10 * ms, 4 * ms}}, between, "within a node two sidecars each way")
	require.Equal(t, []time.Duration{0, 1500 * time.Microsecond}, toClient)

	s.take(s.ways)
	require.Equal(t, [][]time.Duration{{0, 4 * ms}, {4 * ms, 0}}, s.Layout.Topology.RTT)
	require.Equal(t, 10*ms, s.Layout.Plan.RTT[0][1], "the plan stays what it is")
	require.Len(t, s.Setup, 3)
	require.Len(t, s.Notes, 1)
	require.Contains(t, s.Notes[0], "3 of 3 round trips are not the plan's, most of all n1 to n2: measured 4.00 ms, planned 14.00 ms")
}
