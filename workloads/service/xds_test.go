package service

import (
	"context"
	"net"
	"net/http"
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

// twoCallees serves b1 and b2, and an a1 of the config that gets its routes
// over xDS.
func twoCallees(t *testing.T, cfg Config, table heart.RoutingTable) (a, b1, b2 *running) {
	app := chain(burns(0.5))
	app.Components[0].Steps = app.Components[0].Steps[1:] // a only calls, so that its calls come together
	app.Server.Slots = 1
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
	cfg.Component, cfg.App = "a", app
	a = start(t, cfg, grpc.WithResolvers(resolver))
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
	a, b1, b2 := twoCallees(t, Config{}, routed(heart.Weighted, 1, 3))
	conn := dialTo(t, a)
	const n = 400
	for range n {
		require.NoError(t, call(t.Context(), conn))
	}
	require.EqualValues(t, n, served(t, b1)+served(t, b2))
	require.InDelta(t, 0.75, served(t, b2)/n, 0.1) // 4.6 standard deviations
}

// together sends so many requests at the same time and waits for the answers.
func together(t *testing.T, conn *grpc.ClientConn, n int) {
	answers := make(chan error, n)
	for range n {
		go func() { answers <- call(t.Context(), conn) }()
	}
	for range n {
		require.NoError(t, <-answers)
	}
}

// TestAPoolPinsItsConnections: under per-connection balancing a request takes
// the connection that was given back last, with its replica; requests at the
// same time open others, of which as many are kept as the pool holds.
func TestAPoolPinsItsConnections(t *testing.T) {
	a, b1, b2 := twoCallees(t, Config{Connections: 4}, routed(heart.PerConnection, 1, 1))
	pool := a.callees["b"].channels
	conn := dialTo(t, a)
	for range 40 {
		require.NoError(t, call(t.Context(), conn))
	}
	require.Len(t, pool.idle, 1)
	require.ElementsMatch(t, []float64{0, 40}, []float64{served(t, b1), served(t, b2)})

	together(t, conn, 40)
	require.Len(t, pool.idle, 4)
	most := max(served(t, b1), served(t, b2))
	require.Less(t, most, 80.0, "new connections draw a replica") // but for once in 2^39
	last := pool.idle[3]
	require.NoError(t, call(t.Context(), conn))
	require.Same(t, last, pool.idle[3])

	code, answer := a.put(t, BalancerPath+"b", string(heart.Weighted))
	require.Equal(t, http.StatusOK, code, answer)
	require.Empty(t, pool.idle, "no pool under another balancer")
	require.NoError(t, call(t.Context(), conn))
	require.Len(t, pool.shared, 1)
}

// TestProxyThreadsCountApart sends bursts of requests that all wait at their
// replica. One counter deals them out nearly evenly; with as many counters as
// requests most see two idle replicas and the split is a matter of chance: the
// difference between the replicas comes near the variance of so many coins.
func TestProxyThreadsCountApart(t *testing.T) {
	const burst, rounds = 64, 20
	table := routed(heart.LeastRequest, 1, 0)
	table.Groups[1].Replicas = []string{"b1", "b2"} // of one group
	table.Groups, table.Routes[0].Shares = table.Groups[:2], table.Routes[0].Shares[:1]
	for threads, uneven := range map[int]bool{0: false, burst: true} {
		a, b1, b2 := twoCallees(t, Config{ProxyThreads: threads, Connections: 10}, table)
		code, answer := a.put(t, BalancerPath+"b", string(heart.LeastRequest))
		require.Equal(t, http.StatusOK, code, answer)
		require.Len(t, a.callees["b"].channels.shared, max(threads, 1))
		conn := dialTo(t, a)
		together(t, conn, 8*burst) // the channels connect
		squares := 0.0
		for range rounds {
			before := served(t, b1) - served(t, b2)
			together(t, conn, burst)
			d := served(t, b1) - served(t, b2) - before
			squares += d * d
		}
		t.Logf("%d threads: mean square of the difference %.1f, coins have %d", threads, squares/rounds, burst)
		require.Equal(t, uneven, squares/rounds > burst/6, "%d threads: %v", threads, squares/rounds)
	}
}

func TestBalancersAreToldByName(t *testing.T) {
	a := start(t, Config{Component: "a", App: chain(burns(1)), Targets: map[string]string{"b": "passthrough:///127.0.0.1:1"}})
	for _, c := range []struct {
		component, text string
		code            int
		answer          string
	}{
		{"b", "round-robin", http.StatusOK, ""},
		{"b", "fastest", http.StatusBadRequest, `found "fastest", expected one of [weighted least-request per-connection round-robin]`},
		{"c", "weighted", http.StatusNotFound, `a1 calls no component "c"`},
	} {
		code, answer := a.put(t, BalancerPath+c.component, c.text)
		require.Equal(t, c.code, code)
		require.Contains(t, answer, c.answer)
	}
}

// TestDrainUnderLoadLosesNoRequest ends one of two callees while calls go on:
// those under way are answered, the others go to the one that stays.
func TestDrainUnderLoadLosesNoRequest(t *testing.T) {
	a, b1, b2 := twoCallees(t, Config{}, routed(heart.Weighted, 1, 1))
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
