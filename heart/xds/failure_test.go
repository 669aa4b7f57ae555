package xds

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"heartbed/heart"
)

// A faulty table is refused with all its faults and changes nothing.
func TestFaultyTableKeepsTheOldOne(t *testing.T) {
	o, _ := pair(t, "e1", "e2", "e3", "e4", "e5")
	delete(o.Addresses, "e2")
	o.Addresses["e3"] = netip.AddrPort{}
	o.Addresses["e4"] = o.Addresses["e1"]
	o.Addresses["e5"] = netip.MustParseAddrPort("127.0.0.1:0")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1), one("e2", 0))), "no address is needed for weight zero")
	conn := dial(t, at, "d1", "e")
	picks(t, conn, 1)
	before := s.Acks()

	err := s.Route(t.Context(), table(heart.Weighted, one("e1", 1), one("e2", 1), one("e3", 1), one("e4", 1), one("e5", 1), split{"again", 1, []string{"e1"}}))
	for _, want := range []string{
		`from "d" to "e"`, `replica "e2" has no address`, `replica "e3": address "invalid AddrPort", expected an IP address and a port`,
		`replicas "e1" and "e4" have the same address`, `replica "e5": address "127.0.0.1:0"`, `replica "e1" is in two shares`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, s.Route(t.Context(), table("best", one("e9", 1))), `balancer "best" is unknown`)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Route(ended, table(heart.RoundRobin, one("e1", 1))), context.Canceled)
	require.Equal(t, before, s.Acks())
	require.Equal(t, map[string]int{"e1": 20}, picks(t, conn, 20))
}

// A client that refuses a table keeps the one it had, is not sent it again,
// and takes the next.
func TestRefusedTable(t *testing.T) {
	t.Parallel()
	o, _ := pair(t, "e1", "e2")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	conn := dial(t, at, "d1", "e")
	dial(t, at, "d2", "e")
	picks(t, conn, 1)
	waitAcked(t, s)

	// Route sends nothing that gRPC refuses, so the fault is put in behind it.
	b := builder{addresses: o.Addresses}
	bad, err := b.snapshots(table(heart.LeastRequest, one("e2", 1)))
	require.NoError(t, err)
	policy, err := leastRequestByLocality(1)
	require.NoError(t, err)
	bad["d1"].resources.GetResources(resource.ClusterType)["e"].(*cluster.Cluster).LoadBalancingPolicy = policy
	require.NoError(t, s.publish(t.Context(), bad))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = s.WaitAcked(ctx)
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "Cluster:")
	require.Eventually(t, func() bool { // both callers share the faulty cluster
		acks := s.Acks()
		return acks[0].Refusal != "" && acks[1].Refusal != ""
	}, 10*time.Second, time.Millisecond)
	require.Contains(t, s.Acks()[0].Refusal, "Cluster:")
	require.False(t, s.Acks()[0].Accepted)

	sent := s.sent()
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, sent, s.sent(), "the refused table is sent again and again")
	require.NoError(t, s.publish(t.Context(), bad))
	require.NotEmpty(t, s.Acks()[0].Refusal, "still refused: it is not sent again")

	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e2", 1))))
	waitAcked(t, s)
	require.Empty(t, s.Acks()[0].Refusal)
	settle(t, conn, "e2")
}

// sent lists the newest nonce of each stream and type: they grow with every
// response.
func (s *Server) sent() map[int64]map[string]string {
	s.acks.mu.Lock()
	defer s.acks.mu.Unlock()
	nonces := map[int64]map[string]string{}
	for id, stream := range s.acks.streams {
		nonces[id] = map[string]string{}
		for kind, sub := range stream.types {
			nonces[id][kind] = sub.nonce
		}
	}
	return nonces
}

// Callers go on with their table when the server dies, also when it comes back
// without one; and take the table of its successor.
func TestServerDies(t *testing.T) {
	t.Parallel()
	o, _ := pair(t, "e1", "e2")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	conn := dial(t, at, "d1", "e")
	dial(t, at, "d2", "e")
	waitAcked(t, s)
	picks(t, conn, 1)
	s.Stop()
	require.Eventually(t, func() bool { return s.Acks()[0].Streams == 0 }, 5*time.Second, time.Millisecond)
	require.Equal(t, map[string]int{"e1": 100}, picks(t, conn, 100))

	s, _ = startServer(t, o, at)
	require.Eventually(t, func() bool { return len(s.sentTo()) == 2 }, 20*time.Second, 5*time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	require.Equal(t, map[string]int{"e1": 100}, picks(t, conn, 100), "the new server has no table yet")

	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e2", 1))))
	t.Logf("accepted by both callers after %v", waitAcked(t, s))
	settle(t, conn, "e2")
}

// sentTo lists the replicas that have a stream.
func (s *Server) sentTo() map[string]bool {
	s.acks.mu.Lock()
	defer s.acks.mu.Unlock()
	names := map[string]bool{}
	for _, stream := range s.acks.streams {
		names[stream.node] = true
	}
	return names
}

// The share of a callee that is gone goes to the rest of its group, that of a
// whole group to the other groups.
func TestCalleesDie(t *testing.T) {
	t.Parallel()
	o, backends := pair(t, "e1", "e2", "e3")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, split{"a", 1, []string{"e1", "e2"}}, one("e3", 1))))
	conn := dial(t, at, "d1", "e")
	settle(t, conn, "e1", "e2", "e3")
	stop := func(name string) {
		backends[name].server.Stop()
		// The request that meets the closing connection may fail.
		require.Eventually(t, func() bool {
			for range 20 {
				if answered, err := call(t.Context(), conn, ""); err != nil || answered == name {
					return false
				}
			}
			return true
		}, 10*time.Second, time.Millisecond)
	}
	stop("e1")
	requireShares(t, map[string]float64{"e2": .5, "e3": .5}, picks(t, conn, 400))
	stop("e2")
	require.Equal(t, map[string]int{"e3": 100}, picks(t, conn, 100))
}

// More requests may be outstanding than the 1,024 of gRPC's default.
func TestManyOutstandingRequests(t *testing.T) {
	o, backends := pair(t, "e1")
	s, at := startServer(t, o, "127.0.0.1:0")
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 1))))
	conn := dial(t, at, "d1", "e")
	const requests = 1100
	errs := make(chan error, requests)
	for range requests {
		go func() {
			_, err := call(t.Context(), conn, "hold")
			errs <- err
		}()
	}
	for range requests {
		select {
		case <-backends["e1"].held:
		case err := <-errs:
			require.NoError(t, err)
		}
	}
	close(backends["e1"].release)
	for range requests {
		require.NoError(t, <-errs)
	}
}

// A client that looks after its connection as often as gRPC allows is not
// turned away, with or without a stream, and one that vanishes is noticed.
func TestKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		l := bufconn.Listen(1 << 16)
		done := make(chan error)
		go func() { done <- s.Serve(l) }()
		frozen := make(chan struct{})
		conn, err := grpc.NewClient("passthrough:///xds", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Hour, PermitWithoutStream: true}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				c, err := l.DialContext(ctx)
				return freezable{c, frozen}, err
			}))
		require.NoError(t, err)
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&discovery.DiscoveryRequest{Node: &core.Node{Id: "d1"}, TypeUrl: resource.ListenerType, ResourceNames: []string{"e"}}))
		time.Sleep(10 * time.Minute)
		require.NoError(t, stream.Send(&discovery.DiscoveryRequest{TypeUrl: resource.ClusterType, ResourceNames: []string{"e"}}))
		synctest.Wait()
		require.Equal(t, map[string]bool{"d1": true}, s.sentTo())

		close(frozen)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, s.sentTo(), "the vanished client still has a stream")
		require.NoError(t, conn.Close())
		s.Stop()
		require.NoError(t, <-done)
	})
}

// freezable is a connection whose writes get lost once it is frozen.
type freezable struct {
	net.Conn
	frozen chan struct{}
}

func (f freezable) Write(b []byte) (int, error) {
	select {
	case <-f.frozen:
		return len(b), nil
	default:
		return f.Conn.Write(b)
	}
}
