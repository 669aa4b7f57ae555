package main

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcxds "google.golang.org/grpc/xds"

	"heartbed/cmd/internal/cli"
	"heartbed/heart/istio/istiotest"
	"heartbed/heart/xds"
)

// replica is a gRPC server that counts what it answers.
type replica struct {
	at       netip.AddrPort
	answered atomic.Int64
}

func serveReplica(t *testing.T) *replica {
	l, err := net.Listen("tcp", netip.AddrPortFrom(istiotest.Outside(t), 0).String())
	require.NoError(t, err)
	r := &replica{at: netip.MustParseAddrPort(l.Addr().String())}
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		r.answered.Add(1)
		return handle(ctx, request)
	}))
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(s.Stop)
	return r
}

// TestHeartOverXDS: a real gRPC client gets its table from the command, keeps
// it when that is gone, and needs no Istio.
func TestHeartOverXDS(t *testing.T) {
	requirePrograms(t)
	replicas, at := map[string]*replica{}, map[string]netip.AddrPort{}
	for _, name := range []string{"e-1", "e-2", "e-3"} {
		replicas[name] = serveReplica(t)
		at[name] = replicas[name].at
	}
	serves := free(t)
	l := newLive(t, "router: xds\nxds: "+serves+"\npolicy: heart\n", at)
	told := l.waitSteps(t)
	require.Contains(t, told, "route d@n1 to e, weighted:")

	end, log := l.background(t)
	soon(t, "table", log, func() bool { return l.steps(t, "none") >= 1 })
	require.Equal(t, http.StatusOK, l.status(t, "/readyz"))
	bootstrap, err := xds.Bootstrap(serves, "d-1")
	require.NoError(t, err)
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///e", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	// seen is the part of the requests to n1, where two of three replicas are.
	seen := func() float64 {
		const n = 2000
		before := replicas["e-1"].answered.Load() + replicas["e-3"].answered.Load()
		for range n {
			_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
			require.NoError(t, err)
		}
		return float64(replicas["e-1"].answered.Load()+replicas["e-3"].answered.Load()-before) / n
	}
	var got, want float64
	soon(t, "shares as in the table", log, func() bool {
		got, want = seen(), l.share(t, "e@n1")
		return math.Abs(got-want) < 0.03
	})
	t.Logf("part of the requests to n1: seen %.3f, table %.3f", got, want)
	require.InDelta(t, 0.8, want, 0.05, "two replicas at 1 ms and one at 2 ms")

	require.Equal(t, cli.Done, end(), log)
	time.Sleep(time.Second) // the client notices
	require.InDelta(t, want, seen(), 0.03, "callers keep their table")
}
