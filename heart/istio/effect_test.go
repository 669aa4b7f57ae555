package istio_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"heartbed/heart"
	"heartbed/heart/istio"
	"heartbed/heart/istio/istiotest"
	"heartbed/heart/xds"
	"heartbed/testbed/testbedtest"
)

// TestTableToEffect measures the time from a call of Route to the answer of
// the first request that goes where the new table says: through istiod, and
// over our own xDS. The tables send all requests of d-1 to e-1 and to e-4 in
// turn, so that each brings a subset that the caller has no connection to.
func TestTableToEffect(t *testing.T) {
	testbedtest.Require(t, "kind", istiotest.CheckIstiod())
	if !istiotest.Enclose(t) {
		return
	}
	m := newMesh(t)
	server, conn := m.overXDS(t)
	took := m.effects(t, "xDS", server, conn)
	require.LessOrEqual(t, percentile(took, 0.99), time.Second)
	took = m.effects(t, "istiod", m.router(t, istio.Options{}), m.channels["d-1"])
	require.LessOrEqual(t, percentile(took, 0.99), 10*time.Second, "istiod waits for more changes for 10 s at most")
}

// overXDS serves tables to a caller of its own.
func (m mesh) overXDS(t *testing.T) (*xds.Server, *grpc.ClientConn) {
	o := xds.Options{Addresses: map[string]netip.AddrPort{}, Topology: heart.Topology{Calls: []heart.Call{{From: "d", To: "e"}}}}
	for _, g := range istio.ByNode().Groups {
		if !slices.ContainsFunc(o.Topology.Nodes, func(n heart.Node) bool { return n.Name == g.Node }) {
			o.Topology.Nodes = append(o.Topology.Nodes, heart.Node{Name: g.Node})
		}
		for _, name := range g.Replicas {
			o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: name, Component: g.Component, Node: g.Node})
		}
	}
	for name, s := range m.callees {
		o.Addresses[name] = netip.MustParseAddrPort(s.Addr().String())
	}
	server := xds.New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-ended) })
	bootstrap, err := xds.Bootstrap(l.Addr().String(), "d-1")
	require.NoError(t, err)
	return server, m.attach(t, "d-1", bootstrap, xds.Target("e"))
}

// effects changes the table 100 times and gives how long each took, the first
// left out, for which callers get their labels.
func (m mesh) effects(t *testing.T, over string, router heart.Router, conn *grpc.ClientConn) []time.Duration {
	var took []time.Duration
	failed := 0
	for i := range 101 {
		weights, to := [3]uint32{1, 0, 0}, "e-1"
		if i%2 == 1 {
			weights, to = [3]uint32{0, 0, 1}, "e-4"
		}
		began := time.Now()
		require.NoError(t, router.Route(t.Context(), istio.ByNode(weights, weights)))
		fails := m.reaches(t, conn, to)
		if i > 0 {
			took = append(took, time.Since(began))
			failed += fails
		}
	}
	slices.Sort(took)
	t.Logf("table to effect over %s, %d tables: p50 %v, p99 %v, most %v; %d requests failed",
		over, len(took), percentile(took, 0.5), percentile(took, 0.99), percentile(took, 1), failed)
	return took
}

// reaches makes one request after another until a replica of e has answered
// one, and gives how many failed.
func (m mesh) reaches(t *testing.T, conn *grpc.ClientConn, replica string) (failed int) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for before := m.answers(t, replica); m.answers(t, replica) == before; {
		if err := invoke(ctx, conn); isNewCluster(err) {
			failed++
		} else {
			require.NoError(t, err)
		}
	}
	return failed
}

// percentile of sorted durations, by nearest rank.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(float64(len(sorted))*p+0.999999)-1)].Round(time.Millisecond)
}
