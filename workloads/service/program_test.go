package service

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/workloads"
)

// answering is a gRPC server that answers every call as f says, which gets the
// call's metadata. It returns the target.
func answering(t *testing.T, f func(metadata.MD) error) string {
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		if err := f(md); err != nil {
			return err
		}
		return stream.SendMsg(&wrapperspb.BytesValue{})
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends by Stop
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return "passthrough:///" + l.Addr().String()
}

// star is an application whose a has the given step, which calls b and c.
func star(s workloads.Step) workloads.Application {
	return workloads.Application{
		Name: "star", Entry: "a",
		Components: []workloads.Component{
			{Name: "a", Replicas: 1, Steps: []workloads.Step{s}},
			{Name: "b", Replicas: 1, Steps: []workloads.Step{burns(1)}},
			{Name: "c", Replicas: 1, Steps: []workloads.Step{burns(1)}},
		},
		Server: workloads.Server{Threads: 1},
	}
}

// TestFanOutIsAtTheSameTime lets b and c wait for each other.
func TestFanOutIsAtTheSameTime(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	meet := func(metadata.MD) error { both.Done(); both.Wait(); return nil }
	a := start(t, Config{Component: "a", App: star(workloads.Step{Call: []string{"b", "c"}}),
		Targets: map[string]string{"b": answering(t, meet), "c": answering(t, meet)}})
	require.NoError(t, call(t.Context(), dialTo(t, a)))
}

// TestDecisionsFollowTheDraws sends requests with known seeds: which calls are
// made is then known, too.
func TestDecisionsFollowTheDraws(t *testing.T) {
	const n = 100
	for name, step := range map[string]workloads.Step{
		"probability": {Call: []string{"b"}, Probability: 0.3},
		"choose":      {Choose: map[string]float64{"b": 0.3, "c": 0.7}},
	} {
		t.Run(name, func(t *testing.T) {
			var b, c atomic.Int64
			counts := func(n *atomic.Int64) func(metadata.MD) error {
				return func(metadata.MD) error { n.Add(1); return nil }
			}
			a := start(t, Config{Component: "a", App: star(step),
				Targets: map[string]string{"b": answering(t, counts(&b)), "c": answering(t, counts(&c))}})
			conn := dialTo(t, a)
			var wantB, wantC int64
			sampler := workloads.NewSampler(workloads.Distribution{})
			for seed := range uint64(n) {
				ctx := metadata.AppendToOutgoingContext(t.Context(), DrawKey, strconv.FormatUint(seed, 10))
				require.NoError(t, call(ctx, conn))
				draws := workloads.NewDraws(seed)
				switch {
				case name == "probability":
					if sampler.Happens(&draws, 0.3) {
						wantB++
					}
				case sampler.Choose(&draws, []float64{0.3, 0.7}) == 0:
					wantB++
				default:
					wantC++
				}
			}
			require.Equal(t, []int64{wantB, wantC}, []int64{b.Load(), c.Load()})
			require.InDelta(t, 0.3*n, float64(wantB), 20)
		})
	}
}

// TestHoldSlot sends two requests to an a of one slot whose callee does not
// answer: only an a that lets go of its slot gets to call for both.
func TestHoldSlot(t *testing.T) {
	for _, hold := range []bool{false, true} {
		t.Run(strconv.FormatBool(hold), func(t *testing.T) {
			arrived, release := make(chan struct{}, 2), make(chan struct{})
			app := chain(burns(1))
			app.Server.Slots, app.Server.HoldSlot = 1, hold
			a := start(t, Config{Component: "a", App: app, Targets: map[string]string{
				"b": answering(t, func(metadata.MD) error { arrived <- struct{}{}; <-release; return nil }),
			}})
			conn := dialTo(t, a)
			results := make(chan error, 2)
			for range 2 {
				go func() { results <- call(t.Context(), conn) }()
			}
			<-arrived
			if hold {
				require.Never(t, func() bool { return len(arrived) > 0 }, 100*time.Millisecond, 10*time.Millisecond)
			} else {
				<-arrived
			}
			close(release)
			require.NoError(t, <-results)
			require.NoError(t, <-results)
		})
	}
}

// TestFailureNamesTheCallee keeps the code of a failed call.
func TestFailureNamesTheCallee(t *testing.T) {
	a := start(t, Config{Component: "a", App: chain(burns(1)), Targets: map[string]string{
		"b": answering(t, func(metadata.MD) error { return status.Error(codes.ResourceExhausted, "no room") }),
	}})
	err := call(t.Context(), dialTo(t, a))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "b: no room")
	require.Equal(t, "ResourceExhausted", labels(a.families(t)["heartbed_requests_total"].GetMetric()[0])["code"])
}
