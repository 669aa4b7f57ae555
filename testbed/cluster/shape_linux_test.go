package cluster

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// With Shape the plan's round trips are in force and what shapes leaves no trace
// at the nodes.
func TestShape(t *testing.T) {
	b := another(t, "shaped")
	b.Options.Shape = true
	p := testbedtest.Plan()
	p.Entry.ClientRTT = workloads.Duration(20 * time.Millisecond)
	s, err := b.Start(t.Context(), p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	hosts := slices.Clone(b.kept.hosts)
	for _, h := range hosts {
		require.True(t, hasRules(t, h.name))
	}
	require.NoError(t, s.Route(t.Context(), testbedtest.Table(1, 1)))
	o, err := s.Observe(t.Context())
	require.NoError(t, err)
	require.InDelta(t, 10*time.Millisecond, o.Topology.RTT[0][1], float64(2*time.Millisecond))
	m, err := s.Run(t.Context(), nothing)
	require.NoError(t, err)
	for _, f := range m.Faults {
		require.Contains(t, f, "packets were late", "a busy machine is late and says so")
	}
	require.Equal(t, m.Offered, m.Answered)
	require.GreaterOrEqual(t, m.Latency.Min(), int64(20_000), "the way to the gateway and back")
	for _, c := range m.Setup {
		if c.Unit == "ms" {
			require.InDelta(t, c.Spec, c.Measured, 3, c.What)
		}
	}
	require.NoError(t, s.Close())
	for _, h := range hosts {
		require.False(t, hasRules(t, h.name))
	}

	// A run that is killed takes the pods with it, and they their rules.
	s, err = b.Start(t.Context(), p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, c := range b.kept.clients {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { return !hasRules(t, hosts[0].name) && !hasRules(t, hosts[1].name) }, 20*time.Second, 100*time.Millisecond)
}

// hasRules says whether a node of the lab has rules of ours.
func hasRules(t *testing.T, node string) (has bool) {
	t.Helper()
	pid, err := exec.Command("docker", "inspect", "--format", "{{.State.Pid}}", node).Output()
	require.NoError(t, err)
	require.NoError(t, tc.InNamespace(fmt.Sprintf("/proc/%s/ns/net", strings.TrimSpace(string(pid))), func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := conn.ListTables()
		has = slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == "heartbed" })
		return err
	}))
	return has
}
