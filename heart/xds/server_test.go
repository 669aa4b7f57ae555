package xds

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"heartbed/heart"
)

func TestCallersFollowTheWeights(t *testing.T) {
	t.Parallel()
	o, _ := pair(t, "e1", "e2", "e3")
	s, at := startServer(t, o, "127.0.0.1:0")
	first, second := dial(t, at, "d1", "e"), dial(t, at, "d2", "e")
	cases := map[string]struct {
		table heart.RoutingTable
		want  map[string]float64
	}{
		"a share a replica":        {table(heart.Weighted, one("e1", 6667), one("e2", 1667), one("e3", 1666)), map[string]float64{"e1": .6667, "e2": .1667, "e3": .1666}},
		"a group of two":           {table(heart.Weighted, split{"a", 1, []string{"e1", "e2"}}, one("e3", 3)), map[string]float64{"e1": .125, "e2": .125, "e3": .75}},
		"round robin with weights": {table(heart.RoundRobin, one("e1", 9), one("e2", 1)), map[string]float64{"e1": .9, "e2": .1}},
		"least request by weight":  {table(heart.LeastRequest, one("e1", 9), one("e2", 1)), map[string]float64{"e1": .9, "e2": .1}},
		"zero is left out":         {table(heart.Weighted, one("e1", 0), one("e2", 1), one("e3", 1)), map[string]float64{"e2": .5, "e3": .5}},
		"the largest sum":          {table(heart.Weighted, one("e1", 1<<31), one("e2", 1<<31-1)), map[string]float64{"e1": .5, "e2": .5}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, s.Route(t.Context(), c.table))
			t.Logf("accepted by both callers after %v", waitAcked(t, s))
			for _, conn := range []*grpc.ClientConn{first, second} {
				settle(t, conn, slices.Collect(maps.Keys(c.want))...)
				requireShares(t, c.want, picks(t, conn, 300))
			}
		})
	}
}

func TestRoundRobinTakesReplicasInTurn(t *testing.T) {
	o, _ := pair(t, "e1", "e2", "e3")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.RoundRobin, split{"e", 1, []string{"e1", "e2", "e3"}})))
	conn := dial(t, at, "d1", "e")
	settle(t, conn, "e1", "e2", "e3")
	require.Equal(t, map[string]int{"e1": 30, "e2": 30, "e3": 30}, picks(t, conn, 90))
}

// Two draws with replacement: the replica with a request outstanding is taken
// only when both draws hit it, a quarter of the time.
func TestLeastRequestPrefersTheIdleReplica(t *testing.T) {
	o, backends := pair(t, "e1", "e2")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.LeastRequest, split{"e", 1, []string{"e1", "e2"}})))
	conn := dial(t, at, "d1", "e")
	settle(t, conn, "e1", "e2")
	answered := make(chan string)
	go func() {
		name, err := call(t.Context(), conn, "hold")
		if err != nil {
			name = err.Error()
		}
		answered <- name
	}()
	busy, idle := "e1", "e2"
	select {
	case <-backends["e1"].held:
	case <-backends["e2"].held:
		busy, idle = "e2", "e1"
	}
	requireShares(t, map[string]float64{busy: .25, idle: .75}, picks(t, conn, 800))
	close(backends[busy].release)
	require.Equal(t, busy, <-answered)
	requireShares(t, map[string]float64{busy: .5, idle: .5}, picks(t, conn, 200))
}

// Every connection of a process keeps the replica it drew; the draws follow
// the shares.
func TestPerConnectionPins(t *testing.T) {
	t.Parallel()
	o, _ := pair(t, "e1", "e2", "e3")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.PerConnection, split{"a", 1, []string{"e1", "e2"}}, one("e3", 3))))
	seen := runChild(t, at, "d1", childJob{Component: "e", Connections: 160, Calls: 3})
	require.Len(t, seen, 160)
	drawn := map[string]int{}
	for _, counts := range seen {
		require.Len(t, counts, 1, "a connection moved: %v", counts)
		for name := range counts {
			drawn[name]++
		}
	}
	requireShares(t, map[string]float64{"e1": .125, "e2": .125, "e3": .75}, drawn)
}

func TestPerConnectionOnNewConnectionsDrawsEveryRequest(t *testing.T) {
	o, _ := pair(t, "e1", "e2", "e3")
	o.NewConnectionPerRequest = true
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.PerConnection, split{"a", 1, []string{"e1", "e2"}}, one("e3", 3))))
	conn := dial(t, at, "d1", "e")
	settle(t, conn, "e1", "e2", "e3")
	requireShares(t, map[string]float64{"e1": .125, "e2": .125, "e3": .75}, picks(t, conn, 600))
}

// Callers have tables of their own.
func TestCallersDiffer(t *testing.T) {
	o, _ := pair(t, "e1", "e2")
	s, at := startServer(t, o, "127.0.0.1:0")
	rt := table(heart.Weighted, one("e1", 1), one("e2", 1))
	rt.Groups[0] = heart.Group{Name: "d1", Component: "d", Replicas: []string{"d1"}}
	rt.Groups = append(rt.Groups, heart.Group{Name: "d2", Component: "d", Replicas: []string{"d2"}})
	rt.Routes = []heart.Route{
		{From: "d1", To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e1", Weight: 1}}},
		{From: "d2", To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e2", Weight: 1}}},
	}
	require.NoError(t, s.Route(t.Context(), rt))
	require.Equal(t, map[string]int{"e1": 50}, picks(t, dial(t, at, "d1", "e"), 50))
	require.Equal(t, map[string]int{"e2": 50}, picks(t, dial(t, at, "d2", "e"), 50))
}

// A balancer may change while requests run; none may fail.
func TestNewTablesTakeEffectWithoutAnError(t *testing.T) {
	o, _ := pair(t, "e1", "e2")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	conn := dial(t, at, "d1", "e")
	dial(t, at, "d2", "e")
	settle(t, conn, "e1")
	for i, b := range []heart.Balancer{heart.LeastRequest, heart.PerConnection, heart.RoundRobin, heart.Weighted} {
		to := []string{"e2", "e1"}[i%2]
		require.NoError(t, s.Route(t.Context(), table(b, one(to, 7))))
		took := waitAcked(t, s)
		start := time.Now()
		settle(t, conn, to)
		t.Logf("%s: accepted after %v, settled %v later", b, took, time.Since(start))
		require.Positive(t, took)
		require.Less(t, took, 5*time.Second)
	}
}

// A caller that asks before there is a table waits for the first.
func TestCallWaitsForTheFirstTable(t *testing.T) {
	t.Parallel()
	o, _ := pair(t, "e1")
	s, at := startServer(t, o, "127.0.0.1:0")
	conn := dial(t, at, "d1", "e")
	answered := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), conn, "")
		answered <- err
	}()
	select {
	case err := <-answered:
		require.Fail(t, "answered without a table", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	require.NoError(t, <-answered)
}

// A replica that is started again elsewhere, or under another name, is reached
// at its new address.
func TestReplicasMayMove(t *testing.T) {
	o, backends := pair(t, "e1")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.SetReplicas(t.Context(), o.Topology, o.Addresses), "no table yet")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	conn := dial(t, at, "d1", "e")
	dial(t, at, "d2", "e")
	require.Equal(t, map[string]int{"e1": 5}, picks(t, conn, 5))

	moved, address := startBackend(t, "e1 moved")
	o.Addresses["e1"] = address
	require.NoError(t, s.SetReplicas(t.Context(), o.Topology, o.Addresses))
	waitAcked(t, s)
	settle(t, conn, moved.name)
	backends["e1"].server.Stop()
	settle(t, conn, moved.name)

	renamed, address := startBackend(t, "e9")
	o.Topology.Replicas = slices.Clone(o.Topology.Replicas)
	o.Topology.Replicas[2].Name = "e9"
	o.Addresses["e9"] = address
	require.ErrorContains(t, s.SetReplicas(t.Context(), o.Topology, o.Addresses), `replica "e1" is unknown`)
	require.Equal(t, map[string]int{moved.name: 5}, picks(t, conn, 5), "the old table is kept")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e9", 1))))
	waitAcked(t, s)
	settle(t, conn, renamed.name)
}

// A caller that is gone is told nothing more, nor waited for.
func TestCallersMayGo(t *testing.T) {
	t.Parallel()
	o, _ := pair(t, "e1")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	require.Len(t, s.Acks(), 2)
	o.Topology.Replicas = slices.Delete(slices.Clone(o.Topology.Replicas), 1, 2)
	rt := table(heart.Weighted, one("e1", 2))
	rt.Groups[0].Replicas = []string{"d1"}
	require.Error(t, s.SetReplicas(t.Context(), o.Topology, o.Addresses), "the table names d2")
	require.NoError(t, s.Route(t.Context(), rt))
	dial(t, at, "d1", "e")
	waitAcked(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := call(ctx, dial(t, at, "d2", "e"), "")
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	require.Error(t, err)
}

// WaitAcked wants every component a caller calls, and says what is missing.
func TestWaitAckedWantsEveryComponent(t *testing.T) {
	o, _ := pair(t, "e1")
	o.Topology.Calls = append(o.Topology.Calls, heart.Call{From: "d", To: "f"})
	o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: "f1", Component: "f", Node: "n1"})
	_, o.Addresses["f1"] = startBackend(t, "f1")
	s, at := startServer(t, o, "127.0.0.1:0")
	rt := table(heart.Weighted, one("e1", 1))
	rt.Groups = append(rt.Groups, heart.Group{Name: "f", Component: "f", Replicas: []string{"f1"}})
	rt.Routes = append(rt.Routes, heart.Route{From: "d", To: "f", Balancer: heart.RoundRobin, Shares: []heart.Share{{To: "f", Weight: 1}}})
	require.NoError(t, s.Route(t.Context(), rt))
	dial(t, at, "d1", "e")
	require.Eventually(t, func() bool { return s.Acks()[0].Streams == 1 && len(s.Acks()[0].Missing) == 1 }, 10*time.Second, 5*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.WaitAcked(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `replica "d1" lacks routes to f; replica "d2" is not connected`)

	require.Equal(t, map[string]int{"f1": 1}, picks(t, dial(t, at, "d1", "f"), 1))
	dial(t, at, "d2", "e")
	dial(t, at, "d2", "f")
	took := waitAcked(t, s)
	for _, ack := range s.Acks() {
		require.True(t, ack.Accepted)
		require.Equal(t, 2, ack.Streams)
		require.LessOrEqual(t, ack.After, took)
	}
	require.NoError(t, s.Route(t.Context(), rt))
	require.Zero(t, waitAcked(t, s), "the same table is not sent again")
}
