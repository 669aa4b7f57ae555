package prom

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
	"heartbed/workloads"
	"heartbed/workloads/probe"
	"heartbed/workloads/service"
)

// The presets read the service program and the probe as they are.
func TestOurExporters(t *testing.T) {
	t.Parallel()
	replica := runReplica(t)
	prober := runProbe(t)
	p := start(t, fmt.Sprintf("- job_name: real\n  static_configs: [{targets: [%q, %q]}]\n", replica.MetricsAddr(), prober))
	go func() { // some work
		conn, err := grpc.NewClient("passthrough:///"+replica.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return // no request is seen then
		}
		defer conn.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), service.CallerKey, "a1")
		for t.Context().Err() == nil {
			_ = conn.Invoke(ctx, service.Method, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{}) // counted if answered
			time.Sleep(10 * time.Millisecond)
		}
	}()
	c := Config{
		Address: p.URL, Window: model.Duration(5 * time.Second),
		CPU: Query{Preset: ours}, Requests: Query{Preset: ours}, RTT: Query{Preset: ours},
	}
	var o heart.Observation
	require.Eventually(t, func() bool {
		got, err := observer(t, c, pair()).Observe(t.Context())
		o = got
		return err == nil && got.Window > time.Second
	}, time.Minute, every)
	perSecond := o.Replicas["b1"].Requests / o.Window.Seconds()
	require.Greater(t, perSecond, 10.0)
	require.Less(t, perSecond, 100.0)
	require.Greater(t, o.Replicas["b1"].CPUSeconds, o.Replicas["b1"].Requests*0.002, "each takes 2 ms of CPU time")
	require.InDelta(t, o.Replicas["b1"].Requests, o.Calls[heart.Call{From: "a", To: "b"}], 1e-9)
	require.Positive(t, o.Topology.RTT[0][1])
	require.Less(t, o.Topology.RTT[0][1], time.Second)
}

// runReplica is b1, which works 2 ms on a request.
func runReplica(t *testing.T) *service.Service {
	s, err := service.New(service.Config{
		Replica: "b1", Component: "b", Node: "n1", Listen: "127.0.0.1:0", Metrics: "127.0.0.1:0",
		App: workloads.Application{
			Name: "one", Entry: "b",
			Components: []workloads.Component{{Name: "b", Replicas: 1, Steps: []workloads.Step{{CPUMs: 2}}}},
			Server:     workloads.Server{Threads: 1},
		},
	})
	require.NoError(t, err)
	run(t, s.Run)
	return s
}

// runProbe measures from n1 to n2 and gives the exporter's address.
func runProbe(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	run(t, func(ctx context.Context) error {
		return probe.Export(ctx, l, probe.Config{
			Source: "n1", Interval: every,
			Targets: []probe.Target{{Name: "n2", Addr: netip.MustParseAddr("127.0.0.1"), Port: uint16(l.Addr().(*net.TCPAddr).Port)}},
		})
	})
	return l.Addr().String()
}

// run lets a program run until the test ends.
func run(t *testing.T, program func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- program(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
}
