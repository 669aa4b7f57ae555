package service

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	grpcxds "google.golang.org/grpc/xds"

	"heartbed/heart"
	"heartbed/heart/xds"
)

// twoCallees serves b1 and b2, an a1 that gets its routes over xDS, and gives
// the server of the routes.
func twoCallees(t *testing.T, connections int, table heart.RoutingTable) (a, b1, b2 *running) {
	app := chain(burns(0.1))
	b1 = start(t, Config{Replica: "b1", Component: "b", App: app})
	b2 = start(t, Config{Replica: "b2", Component: "b", App: app})
	routes := xds.New(xds.Options{
		Addresses: map[string]netip.AddrPort{
			"b1": netip.MustParseAddrPort(b1.Addr().String()), "b2": netip.MustParseAddrPort(b2.Addr().String()),
		},
		Topology: heart.Topology{
			Nodes: []heart.Node{{Name: "n1"}, {Name: "n2"}},
			Replicas: []heart.Replica{
				{Name: "a1", Component: "a", Node: "n1"}, {Name: "b1", Component: "b", Node: "n1"}, {Name: "b2", Component: "b", Node: "n2"},
			},
			Calls: []heart.Call{{From: "a", To: "b"}},
			RTT:   [][]time.Duration{{0, time.Millisecond}, {time.Millisecond, 0}},
		},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = routes.Serve(l) }) // ends by Stop
	t.Cleanup(func() { routes.Stop(); serving.Wait() })
	require.NoError(t, routes.Route(t.Context(), table))
	bootstrap, err := xds.Bootstrap(l.Addr().String(), "a1")
	require.NoError(t, err)
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	require.NoError(t, err)
	a = start(t, Config{Component: "a", App: app, Connections: connections}, grpc.WithResolvers(resolver))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = routes.WaitAcked(ctx)
	require.NoError(t, err)
	return a, b1, b2
}

// routed is a table that sends a's requests to b1 and b2 with these weights.
func routed(balancer heart.Balancer, w1, w2 uint32) heart.RoutingTable {
	return heart.RoutingTable{
		Groups: []heart.Group{
			{Name: "a", Component: "a", Replicas: []string{"a1"}},
			{Name: "b1", Component: "b", Replicas: []string{"b1"}}, {Name: "b2", Component: "b", Replicas: []string{"b2"}},
		},
		Routes: []heart.Route{{From: "a", To: "b", Balancer: balancer, Shares: []heart.Share{{To: "b1", Weight: w1}, {To: "b2", Weight: w2}}}},
	}
}

// served counts the answers of a replica.
func served(t *testing.T, r *running) float64 {
	n := 0.0
	for _, m := range r.families(t)["heartbed_requests_total"].GetMetric() {
		n += m.GetCounter().GetValue()
	}
	return n
}

func TestRoutesComeOverXDS(t *testing.T) {
	a, b1, b2 := twoCallees(t, 0, routed(heart.Weighted, 1, 3))
	conn := dialTo(t, a)
	const n = 400
	for range n {
		require.NoError(t, call(t.Context(), conn))
	}
	require.EqualValues(t, n, served(t, b1)+served(t, b2))
	require.InDelta(t, 0.75, served(t, b2)/n, 0.1) // 4.6 standard deviations
}

// TestPerConnectionPinsEachConnection gives a four connections: each sends all
// its requests to one replica, so that a replica gets a whole number of
// quarters.
func TestPerConnectionPinsEachConnection(t *testing.T) {
	a, b1, b2 := twoCallees(t, 4, routed(heart.PerConnection, 1, 1))
	conn := dialTo(t, a)
	for range 40 {
		require.NoError(t, call(t.Context(), conn))
	}
	require.EqualValues(t, 40, served(t, b1)+served(t, b2))
	require.Zero(t, int(served(t, b1))%10, "b1 got %v", served(t, b1))
}

// TestDrainUnderLoadLosesNoRequest ends one of two callees while calls go on:
// those under way are answered, the others go to the one that stays.
func TestDrainUnderLoadLosesNoRequest(t *testing.T) {
	a, b1, b2 := twoCallees(t, 0, routed(heart.Weighted, 1, 1))
	conn := dialTo(t, a)
	end := make(chan struct{})
	failures, calls := make(chan error, 4), atomic.Int64{}
	for range cap(failures) {
		go func() {
			for {
				select {
				case <-end:
					failures <- nil
					return
				default:
				}
				if err := call(t.Context(), conn); err != nil {
					failures <- err
					return
				}
				calls.Add(1)
			}
		}()
	}
	more := func(n int64) {
		until := calls.Load() + n
		require.Eventually(t, func() bool { return calls.Load() >= until || len(failures) > 0 }, 10*time.Second, time.Millisecond)
	}
	more(100)
	require.Positive(t, served(t, b1))
	b1.stop()
	require.NoError(t, <-b1.ended)
	before := served(t, b2)
	more(100)
	close(end)
	for range cap(failures) {
		require.NoError(t, <-failures)
	}
	require.GreaterOrEqual(t, served(t, b2), before+100)
}
