package service

import (
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// counting passes connections on and counts them, as kube-proxy passes those
// to a Service on.
func counting(t *testing.T, to *running) (address string, count *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	count = new(atomic.Int64)
	var serving sync.WaitGroup
	pass := func(from, to net.Conn) {
		buffer := make([]byte, 4096)
		for {
			n, err := from.Read(buffer)
			if err == nil {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				from.Close()
				to.Close()
				return
			}
		}
	}
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			server, err := net.Dial("tcp", to.Addr().String())
			if err != nil {
				client.Close()
				continue
			}
			serving.Go(func() { pass(client, server) })
			serving.Go(func() { pass(server, client) })
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return l.Addr().String(), count
}

// Per connection, connections go to the Service: one for every request where
// none are kept. Under any other balancer requests follow the routes.
func TestPerConnectionGoesToTheService(t *testing.T) {
	for name, c := range map[string]struct {
		kept, want int64
	}{"none kept": {0, 5}, "kept": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			app := chain(burns(0.1))
			byRoute := start(t, Config{Replica: "b1", Component: "b", App: app})
			byService := start(t, Config{Replica: "b2", Component: "b", App: app})
			address, opened := counting(t, byService)
			a := start(t, Config{
				Component: "a", App: app, Connections: int(c.kept),
				Targets:  map[string]string{"b": "passthrough:///" + byRoute.Addr().String()},
				Services: map[string]string{"b": address},
			})
			conn := dialTo(t, a)
			told := func(balancer string) {
				code, answer := a.put(t, BalancerPath+"b", balancer)
				require.Equal(t, http.StatusOK, code, answer)
			}
			told("per-connection")
			for range 5 {
				require.NoError(t, call(t.Context(), conn))
			}
			require.Equal(t, c.want, opened.Load())
			require.Empty(t, byRoute.families(t)["heartbed_requests_total"].GetMetric())
			told("weighted")
			require.NoError(t, call(t.Context(), conn))
			require.Len(t, byRoute.families(t)["heartbed_requests_total"].GetMetric(), 1)
			require.Equal(t, c.want, opened.Load())
		})
	}
}
