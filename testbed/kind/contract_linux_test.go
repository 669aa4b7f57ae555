package kind

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// shared is one cluster for all tests of this package that need one.
var shared = &Backend{}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "remove the cluster:", err)
		code = 1
	}
	os.Exit(code)
}

func liveBackend(t *testing.T) *Backend {
	t.Helper()
	testbedtest.Require(t, "kind", shared.Check(t.Context()))
	return shared
}

func TestContract(t *testing.T) { testbedtest.Run(t, liveBackend(t)) }

// Default Kubernetes is kube-proxy's own choice: connections go to the
// Service's address, and requests reach all replicas whatever the routes' weights.
func TestKubeProxyBalances(t *testing.T) {
	b := liveBackend(t)
	s, err := b.Start(t.Context(), testbedtest.Plan())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	table := testbedtest.Table(1, 0)
	for i := range table.Routes {
		table.Routes[i].Balancer = "per-connection"
	}
	require.NoError(t, s.Route(t.Context(), table))
	m, err := s.Run(t.Context(), nothing)
	require.NoError(t, err)
	require.Empty(t, m.Faults)
	to := map[string]float64{}
	for _, share := range m.Seen {
		to[share.To.Name] += float64(share.Requests)
	}
	require.Equal(t, m.Offered, m.Answered)
	require.InDelta(t, 0.5, to["b2"]/(to["b1"]+to["b2"]), 0.1, "four standard deviations of 400 draws")
}

// A load from a pod is measured as one from this process is: from the due time,
// over the plan's distances, with its own noise floor.
func TestLoadFromAPod(t *testing.T) {
	b := liveBackend(t)
	b.Options.LoadPod = true
	defer func() { b.Options.LoadPod = false }()
	p := testbedtest.Plan()
	p.Entry.ClientRTT = workloads.Duration(20 * time.Millisecond)
	s, err := b.Start(t.Context(), p)
	require.NoError(t, err, "round trips from the pod are measured, too")
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Route(t.Context(), testbedtest.Table(1, 1)))
	m, err := s.Run(t.Context(), nothing)
	require.NoError(t, err)
	require.Empty(t, m.Faults)
	require.InDelta(t, 400, m.Offered, 2)
	require.Equal(t, m.Offered, m.Answered)
	require.Equal(t, m.Answered, m.Latency.TotalCount())
	require.GreaterOrEqual(t, m.Latency.Min(), int64(20_000), "the way to the gateway and back")
	require.Contains(t, fmt.Sprint(m.Warnings), "the load generator is a pod")
	require.Contains(t, fmt.Sprint(m.Warnings), "noise floor")
}
