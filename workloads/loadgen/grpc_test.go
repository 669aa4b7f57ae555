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
	draws   map[string]bool
}

func startGRPC(t *testing.T, answer func(n int) error) *grpcServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &grpcServer{address: l.Addr().String(), callers: map[string]int{}, draws: map[string]bool{}}
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
			s.draws[md.Get("x-draw")[0]] = true
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
	s := startGRPC(t, func(n int) error {
		if n%5 == 0 {
			return status.Error(codes.Unavailable, "overloaded")
		}
		return nil
	})
	for _, c := range []Config{open("grpc://"+s.address, 100, 2), wrk2("grpc://"+s.address, 100, 1, 2)} {
		t.Run(c.Load.Schedule, func(t *testing.T) {
			c.Duration, c.Caller = 500*time.Millisecond, "client-"+c.Load.Schedule
			r, err := Run(t.Context(), c)
			require.NoError(t, err)
			balanced(t, r)
			require.GreaterOrEqual(t, r.Answered, int64(20))
			require.InDelta(t, float64(r.Answered)/4, r.Errors.Status, 3)
			require.Contains(t, r.Faults[0], "overloaded")
			s.mu.Lock()
			require.GreaterOrEqual(t, s.callers[c.Caller], int(r.Answered+r.Failed))
			s.mu.Unlock()
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
