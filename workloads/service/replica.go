package service

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/workloads"
)

// replica answers requests, whichever protocol they came by.
type replica struct {
	cfg     Config
	program *program
	callees map[string]*callee
	metrics *exporter
}

// answer works off one request and books it. The error carries a gRPC status.
func (r *replica) answer(ctx context.Context, caller, seed string) error {
	arrived := time.Now()
	inside := r.metrics.inside.Add(1)
	defer r.metrics.inside.Add(-1)
	err := r.admit(ctx, inside, seed)
	r.metrics.answered(caller, status.Code(err).String(), time.Since(arrived))
	return err
}

// admit does the work of a request for which there is room.
func (r *replica) admit(ctx context.Context, inside int64, seed string) error {
	if inside > int64(r.cfg.Queue) {
		return status.Errorf(codes.ResourceExhausted, "%s: %d requests are here already", r.cfg.Replica, r.cfg.Queue)
	}
	draws, err := drawsOf(seed)
	if err != nil {
		return err
	}
	if r.cfg.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.Deadline)
		defer cancel()
	}
	return r.program.do(ctx, draws)
}

// drawsOf reads a seed from the wire; a request without one gets its own.
func drawsOf(seed string) (workloads.Draws, error) {
	if seed == "" {
		return workloads.NewDraws(rand.Uint64()), nil
	}
	v, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return workloads.Draws{}, status.Errorf(codes.InvalidArgument, "%s: found %q, expected a decimal of 64 bits", DrawKey, seed)
	}
	return workloads.NewDraws(v), nil
}

// serviceDesc is the gRPC service of Method.
func (r *replica) serviceDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "heartbed.Workload",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Call",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				in := &wrapperspb.BytesValue{}
				if err := decode(in); err != nil {
					return nil, err
				}
				md, _ := metadata.FromIncomingContext(ctx)
				return &wrapperspb.BytesValue{}, r.answer(ctx, first(md.Get(CallerKey)), first(md.Get(DrawKey)))
			},
		}},
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// ServeHTTP is the gateway: any GET is a request to the entry.
func (r *replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet {
		http.Error(w, fmt.Sprintf("found %s, expected GET", req.Method), http.StatusMethodNotAllowed)
		return
	}
	if err := r.answer(req.Context(), "", req.Header.Get(DrawKey)); err != nil {
		s := status.Convert(err)
		http.Error(w, fmt.Sprintf("%s: %s", s.Code(), s.Message()), httpCode(s.Code()))
		return
	}
	w.Header().Set("Content-Length", "0")
}

// httpCode is what a gateway answers when the call behind it failed.
func httpCode(c codes.Code) int {
	switch c {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.ResourceExhausted, codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}
