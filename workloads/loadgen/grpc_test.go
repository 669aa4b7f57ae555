package loadgen

import (
	"context"
	"net"
	"sync"
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

// grpcServer answers Call after a while with the result of fail.
type grpcServer struct {
	address string
	mu      sync.Mutex
	callers map[string]int
	draws   []string // in the order of their coming
}

func startGRPC(t *testing.T, answer func(n int) error) *grpcServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &grpcServer{address: l.Addr().String(), callers: map[string]int{}}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "heartbed.Workload", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.BytesValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			md, _ := metadata.FromIncomingContext(ctx)
			s.mu.Lock()
			s.callers[md.Get("x-caller")[0]]++
			s.draws = append(s.draws, md.Get("x-draw")...)
			n := len(s.draws)
			s.mu.Unlock()
			if err := answer(n); err != nil {
				return nil, err
			}
			return wrapperspb.Bytes([]byte("ok")), nil
		}}},
	}, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-done) })
	return s
}

func TestGRPC(t *testing.T) {
	for _, schedule := range []func(string) Config{
		func(url string) Config { return open(url, 100, 2) },
		func(url string) Config { return wrk2(url, 100, 1, 2) },
	} {
		s := startGRPC(t, func(n int) error {
			if n%5 == 0 {
				return status.Error(codes.Unavailable, "overloaded")
			}
			return nil
		})
		c := schedule("grpc://" + s.address)
		t.Run(c.Load.Schedule, func(t *testing.T) {
			c.Duration, c.Caller, c.Seed, c.Run = 500*time.Millisecond, "client", 9, 1
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			balanced(t, r)
			require.GreaterOrEqual(t, r.Answered, int64(20))
			require.InDelta(t, float64(r.Answered)/4, r.Errors.Status, 3)
			require.Contains(t, r.Faults[0], "overloaded")
			s.mu.Lock()
			defer s.mu.Unlock()
			require.GreaterOrEqual(t, s.callers["client"], int(r.Answered+r.Failed))
			require.Subset(t, simulated(9, 1, 60), s.draws)
		})
	}
}

func TestGRPCTimeout(t *testing.T) {
	s := startGRPC(t, func(int) error { time.Sleep(200 * time.Millisecond); return nil })
	c := open("grpc://"+s.address, 50, 0)
	c.Duration, c.Caller, c.Load.Timeout = 300*time.Millisecond, "x", workloads.Duration(50*time.Millisecond)
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	balanced(t, r)
	require.Equal(t, int64(14), r.TimedOut)
}
