package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"heartbed/workloads"
	"heartbed/workloads/loadgen"
	"heartbed/workloads/loadgen/loadgentest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves an agent until the test ends, or stop is called.
func start(t *testing.T) (c *Client, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l) }()
	var stopped atomic.Bool
	stop = func() {
		if cancel(); stopped.CompareAndSwap(false, true) {
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(stop)
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	c, err = NewClient(conn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, stop
}

func loadOf(url string, d time.Duration) loadgen.Config {
	return loadgen.Config{Target: url, Load: workloads.Load{Schedule: "open", Arrivals: "even"}, RPS: 100, Duration: d, Hiccups: true}
}

func TestDial(t *testing.T) {
	c, _ := start(t)
	srv, err := loadgentest.Start(loadgentest.Stall{})
	require.NoError(t, err)
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, address) },
	}}
	for range 3 {
		resp, err := client.Get(srv.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	client.CloseIdleConnections()
	_, err = c.Dial(t.Context(), "127.0.0.1:1")
	require.ErrorContains(t, err, "dial 127.0.0.1:1 from the cluster: dial tcp 127.0.0.1:1: connect: connection refused")
}

func TestListen(t *testing.T) {
	c, _ := start(t)
	l, err := c.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	url := "http://" + l.Addr().String()
	for range 3 {
		resp, err := http.Get(url)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	again, err := c.Listen(t.Context(), l.Addr().String())
	require.NoError(t, err, "the port is free at once")
	require.NoError(t, again.Close())
	_, err = c.Listen(t.Context(), "192.0.2.1:80")
	require.ErrorContains(t, err, "cannot assign requested address")
}

func TestMeasure(t *testing.T) {
	c, _ := start(t)
	_, err := c.Measure(t.Context(), netip.MustParseAddr("127.0.0.1"), 3)
	require.ErrorContains(t, err, "probe 127.0.0.1 (127.0.0.1) by tcp")
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", "7003"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Answer(ctx, l) }()
	rtt, err := c.Measure(t.Context(), netip.MustParseAddr("127.0.0.1"), 3)
	require.NoError(t, err)
	require.Positive(t, rtt)
	require.Less(t, rtt, time.Second)
	cancel()
	require.NoError(t, <-ended)
}

func TestLoad(t *testing.T) {
	c, _ := start(t)
	srv, err := loadgentest.Start(loadgentest.Stall{Service: 5 * time.Millisecond})
	require.NoError(t, err)
	defer srv.Close()
	r, err := c.Load(t.Context(), loadOf(srv.URL, 300*time.Millisecond))
	require.NoError(t, err)
	require.EqualValues(t, 29, r.Offered, "the first is due after a pace")
	require.Equal(t, r.Offered, r.Answered)
	require.GreaterOrEqual(t, r.Latency.Min(), int64(4900))
	require.Positive(t, r.Hiccups.TotalCount())
	_, err = c.Load(t.Context(), loadOf("nowhere", time.Second))
	require.ErrorContains(t, err, "load from the cluster: bad load configuration")
}

// A caller that gives up takes its load with it.
func TestLoadEndsWithItsCaller(t *testing.T) {
	c, _ := start(t)
	srv, err := loadgentest.Start(loadgentest.Stall{})
	require.NoError(t, err)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.Load(ctx, loadOf(srv.URL, time.Hour))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	// goleak finds a load that goes on, and so does the agent's end.
}

func TestLostAgent(t *testing.T) {
	c, stop := start(t)
	srv, err := loadgentest.Start(loadgentest.Stall{})
	require.NoError(t, err)
	defer srv.Close()
	l, err := c.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Load(t.Context(), loadOf(srv.URL, time.Hour))
		failed <- err
	}()
	time.Sleep(100 * time.Millisecond)
	stop()
	require.ErrorIs(t, <-failed, ErrLost)
	<-c.Lost()
	_, err = l.Accept()
	require.ErrorIs(t, err, ErrLost)
	require.NoError(t, l.Close())
	_, err = c.Dial(t.Context(), "127.0.0.1:1")
	require.ErrorIs(t, err, ErrLost)
}

// An older agent, or a client that is none, is told so and disturbs nobody.
func TestFaultyRequests(t *testing.T) {
	c, _ := start(t)
	_, _, err := c.ask(t.Context(), request{})
	require.ErrorContains(t, err, "is the image older")
	stream, err := c.session.OpenStream()
	require.NoError(t, err)
	_, err = stream.Write([]byte{0xff, 0xff, 0xff, 0xff})
	require.NoError(t, err)
	_, err = stream.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = c.Ping()
	require.NoError(t, err)
}
