// Package sink is the receiver of Envoy's metrics service: it turns the flushes
// that proxies push into one sample a flush for the store, by the names that
// Istio gives the metrics. It keeps a few sums a stream and nothing of a
// message. It refuses to guess: a stream that does not say which pod it is ends,
// and a flush with a value that cannot be is not stored, because a metric
// without value would read as zero.
package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"heartbed/activescale/store"
)

// Defaults of the options.
const (
	DefaultEvery      = 5 * time.Second // Envoy's stats_flush_interval
	DefaultQuiet      = 20 * time.Millisecond
	DefaultPutTimeout = time.Second
	DefaultMaxStreams = 10_000
)

// Options of a receiver.
type Options struct {
	Store store.Store
	// Mean adds store.InboundMeanRequests to the samples.
	Mean bool
	// Every is the flush interval to expect, for the mean of a stream's first
	// flush; 0 = DefaultEvery. Later ones have their own.
	Every time.Duration
	// Quiet is how long after a message the flush is complete if nothing
	// follows: a flush may come in several messages, and none says that it is
	// the last. 0 = DefaultQuiet.
	Quiet time.Duration
	// PutTimeout bounds each call of the store; 0 = DefaultPutTimeout.
	PutTimeout time.Duration
	// MaxStreams may be open at once, further ones are refused with
	// ResourceExhausted; 0 = DefaultMaxStreams.
	MaxStreams int
	// Verify, if set, is asked before the first flush of a stream whether a
	// client with this identity may report for the pod. Before, the receiver
	// has made sure that there is an identity and that it is of the pod's
	// namespace; that the service account is the pod's, only Verify can know.
	Verify func(ctx context.Context, id SPIFFE, pod store.Pod) error
	// Metrics gets the receiver's own metrics; nil = nobody.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil = none
}

func (o Options) withDefaults() Options {
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.Quiet = cmp.Or(o.Quiet, DefaultQuiet)
	o.PutTimeout = cmp.Or(o.PutTimeout, DefaultPutTimeout)
	o.MaxStreams = cmp.Or(o.MaxStreams, DefaultMaxStreams)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Server receives the streams. Its methods may be called concurrently.
type Server struct {
	metrics.UnimplementedMetricsServiceServer

	opts    Options
	counts  *counts
	storing seldom // log lines about the store

	mu      sync.Mutex // of what follows
	streams map[*stream]struct{}
	perPod  map[store.Pod]int // open streams
	opening int               // streams that have not named themselves yet
}

// New returns a receiver; it fails if its metrics are registered already.
func New(o Options) (*Server, error) {
	if o.Store == nil {
		return nil, errors.New("sink: Store: found none, expected one")
	}
	s := &Server{opts: o.withDefaults(), streams: map[*stream]struct{}{}, perPod: map[store.Pod]int{}}
	s.counts = newCounts()
	if o.Metrics != nil {
		for _, c := range s.collectors() {
			if err := o.Metrics.Register(c); err != nil {
				return nil, fmt.Errorf("sink: %w", err)
			}
		}
	}
	return s, nil
}

// Register adds the receiver to a gRPC server, see ServerOptions.
func (s *Server) Register(r grpc.ServiceRegistrar) { metrics.RegisterMetricsServiceServer(r, s) }

// StreamMetrics serves one stream until the client or the connection ends it.
func (s *Server) StreamMetrics(in metrics.MetricsService_StreamMetricsServer) error {
	if !s.admit() {
		s.counts.rejected.WithLabelValues(tooMany).Inc()
		return status.Errorf(codes.ResourceExhausted, "%d streams are open already", s.opts.MaxStreams)
	}
	st, m, err := s.introduce(in)
	s.mu.Lock()
	s.opening--
	if err == nil {
		s.enlist(st)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.leave(st)
	for {
		st.take(in.Context(), m)
		if m, err = in.Recv(); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		st.finish(in.Context())
		return in.SendAndClose(&metrics.StreamMetricsResponse{})
	}
	return s.broken(err)
}

// introduce waits for the first message, which says what pod the stream is
// of.
func (s *Server) introduce(in metrics.MetricsService_StreamMetricsServer) (*stream, *metrics.StreamMetricsMessage, error) {
	m, err := in.Recv()
	if err != nil {
		return nil, nil, s.broken(err)
	}
	node := m.GetIdentifier().GetNode()
	pod, err := podOf(node)
	if err != nil {
		s.counts.rejected.WithLabelValues(nameless).Inc()
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.opts.Verify != nil {
		if err := verify(in.Context(), s.opts.Verify, pod); err != nil {
			s.counts.rejected.WithLabelValues(foreign).Inc()
			return nil, nil, status.Error(codes.PermissionDenied, err.Error())
		}
	}
	st := newStream(in.Context(), s, pod, node)
	if p, ok := peer.FromContext(in.Context()); ok {
		st.peer = p.Addr.String()
	}
	return st, m, nil
}

// broken counts the end of a stream that is not io.EOF. Most are none of the
// receiver's business: the client or the network has gone.
func (s *Server) broken(err error) error {
	switch status.Code(err) {
	case codes.ResourceExhausted:
		s.counts.rejected.WithLabelValues(tooLarge).Inc()
	case codes.Internal, codes.InvalidArgument:
		s.counts.rejected.WithLabelValues(garbage).Inc()
	}
	return err
}

// admit takes a place for a stream.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams)+s.opening >= s.opts.MaxStreams {
		return false
	}
	s.opening++
	return true
}

// enlist makes a stream one of the open ones; s.mu is held. Of two streams of
// one pod the store keeps what the younger says, by their epochs: an old one
// may still be open because nobody has noticed that its client is gone.
func (s *Server) enlist(st *stream) {
	if s.perPod[st.pod] > 0 {
		s.counts.duplicates.Inc()
	}
	s.perPod[st.pod]++
	s.streams[st] = struct{}{}
}

func (s *Server) leave(st *stream) {
	st.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
	if s.perPod[st.pod]--; s.perPod[st.pod] == 0 {
		delete(s.perPod, st.pod)
	}
}
