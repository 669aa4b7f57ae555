package service

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"heartbed/workloads"
)

// sink keeps what was pushed last.
type sink struct {
	metrics.UnimplementedMetricsServiceServer
	mu     sync.Mutex
	node   string
	gauges map[string]float64
}

func (s *sink) StreamMetrics(in metrics.MetricsService_StreamMetricsServer) error {
	for {
		m, err := in.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		if id := m.GetIdentifier().GetNode().GetId(); id != "" {
			s.node = id
		}
		s.gauges = map[string]float64{}
		for _, f := range m.GetEnvoyMetrics() {
			if g := f.GetMetric()[0].GetGauge(); g != nil {
				s.gauges[f.GetName()] = g.GetValue()
			}
		}
		s.mu.Unlock()
	}
}

// receive serves a sink for the test.
func receive(t *testing.T) (s *sink, addr string) {
	s = &sink{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	metrics.RegisterMetricsServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends by Stop
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return s, l.Addr().String()
}

// has waits until the gauge was pushed with the value.
func (s *sink) has(t *testing.T, name string, want float64) {
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got, ok := s.gauges[name]
		return ok && got == want
	}, 20*time.Second, time.Millisecond, "%s is not %v", name, want)
}

// id is the node's that pushed last.
func (s *sink) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// port is what the names of a replica's metrics have of its address.
func port(r *running) string {
	_, port, _ := net.SplitHostPort(r.Addr().String())
	return "0.0.0.0_" + port
}

// TestPushCountsWhatIsInside holds three requests in a replica with one slot:
// two of them wait in its queue, and all count, as beside a sidecar. One sends
// a request of its own.
func TestPushCountsWhatIsInside(t *testing.T) {
	s, addr := receive(t)
	arrived, release := make(chan struct{}, 3), make(chan struct{})
	app := chain(burns(1))
	app.Server.Slots, app.Server.HoldSlot = 1, true
	a := start(t, Config{Component: "a", App: app, Push: Push{To: addr, Every: 5 * time.Millisecond, Pod: "a-0", Namespace: "shop", IP: "10.1.2.3"},
		Targets: map[string]string{"b": answering(t, func(metadata.MD) error { arrived <- struct{}{}; <-release; return nil })}})
	inbound, outbound := "http.inbound_"+port(a)+";.downstream_rq_active", "http.outbound_"+port(a)+";.downstream_rq_active"
	conn := dialTo(t, a)
	results := make(chan error, 3)
	for range 3 {
		go func() { results <- call(t.Context(), conn) }()
	}
	<-arrived
	s.has(t, inbound, 3)
	s.has(t, outbound, 1)
	s.has(t, "listener."+port(a)+".downstream_cx_active", 1)
	close(release)
	for range 3 {
		require.NoError(t, <-results)
	}
	s.has(t, inbound, 0)
	s.has(t, outbound, 0)
	require.Equal(t, "sidecar~10.1.2.3~a-0.shop~shop.svc.cluster.local", s.id())
	a.stop()
	require.NoError(t, <-a.ended)
}

// TestGatewayPushesOutbound, as Istio's gateways do.
func TestGatewayPushesOutbound(t *testing.T) {
	s, addr := receive(t)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	g := start(t, Config{Component: "gateway", App: chain(burns(1)), Gateway: true, Push: Push{To: addr, Every: 5 * time.Millisecond},
		Targets: map[string]string{"a": answering(t, func(metadata.MD) error { arrived <- struct{}{}; <-release; return nil })}})
	answered := make(chan error, 1)
	client := httpClient(t)
	go func() {
		resp, err := client.Get("http://" + g.Addr().String())
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	<-arrived
	s.has(t, "http.outbound_"+port(g)+";.downstream_rq_active", 1)
	s.has(t, "listener."+port(g)+".downstream_cx_active", 1)
	close(release)
	require.NoError(t, <-answered)
	s.has(t, "http.outbound_"+port(g)+";.downstream_rq_active", 0)
	client.Transport.(*http.Transport).CloseIdleConnections()
	s.has(t, "listener."+port(g)+".downstream_cx_active", 0)
	require.Equal(t, "router~127.0.0.1~gateway1.default~default.svc.cluster.local", s.id())
}

// TestPushGoesOnWhileDraining: what is finished at the end still loads the pod.
func TestPushGoesOnWhileDraining(t *testing.T) {
	s, addr := receive(t)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	app := chain(burns(1))
	app.Components[0].Steps = []workloads.Step{{Call: []string{"b"}}}
	a := start(t, Config{Component: "a", App: app, Push: Push{To: addr, Every: 5 * time.Millisecond},
		Targets: map[string]string{"b": answering(t, func(metadata.MD) error { arrived <- struct{}{}; <-release; return nil })}})
	conn := dialTo(t, a)
	result := make(chan error, 1)
	go func() { result <- call(t.Context(), conn) }()
	<-arrived
	a.stop()
	require.Eventually(t, func() bool { return a.get(t, "/ready") != http.StatusOK }, 20*time.Second, time.Millisecond)
	s.mu.Lock()
	s.gauges = nil
	s.mu.Unlock()
	s.has(t, "http.inbound_"+port(a)+";.downstream_rq_active", 1)
	close(release)
	require.NoError(t, <-result)
	require.NoError(t, <-a.ended)
}

// TestNothingIsCountedForNobody keeps the replica free of stats handlers.
func TestNothingIsCountedForNobody(t *testing.T) {
	p := newProxy(Push{Every: time.Second, Pod: "a-0"})
	require.Nil(t, p)
	require.Empty(t, p.dial())
	require.Empty(t, p.server())
	server := &http.Server{Handler: http.NotFoundHandler()}
	p.http(server)
	require.Nil(t, server.ConnState)
}
