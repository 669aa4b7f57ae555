package push

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// One connection to a receiver drawn anew for each: Envoy's cluster draws one
// of the addresses in turn for each stream.
const drawReceiver = `{"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": true}}]}`

// sink pushes over one stream at a time.
type sink struct {
	opts   Options
	conn   *grpc.ClientConn
	stream *stream // nil before the first, and when a message could not be sent
	source source
	lost   bool // the last flush was not sent
}

func newSink(o Options) (*sink, error) {
	dial := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), // as Envoy, which keeps its connection
		grpc.WithDefaultServiceConfig(drawReceiver),
		// A receiver that is back is found by the next flush, not by the one
		// after a back-off of two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: min(o.Every, time.Second), Multiplier: 1.6, Jitter: 0.2, MaxDelay: o.Every},
			MinConnectTimeout: time.Second, // as Istio's cluster has it
		}),
	}, o.Dial...)
	conn, err := grpc.NewClient(o.Target, dial...)
	if err != nil {
		return nil, err
	}
	return &sink{opts: o, conn: conn, source: source{opts: o}}, nil
}

// run flushes until ctx ends.
func (s *sink) run(ctx context.Context) {
	due := time.NewTimer(s.opts.First)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
		due.Reset(s.opts.Every)
		s.told(s.flush(ctx))
	}
}

// close ends the stream and the connection.
func (s *sink) close() error {
	if s.stream != nil {
		s.stream.end()
	}
	return s.conn.Close()
}

// flush sends the values of this moment. Intervals begin anew whether or not
// the receiver got them.
func (s *sink) flush(ctx context.Context) error {
	families := s.source.families(s.opts.Read())
	if s.stream != nil && s.stream.ended() {
		s.stream = nil
	}
	size := len(families)
	if s.opts.BatchSize > 0 {
		size = s.opts.BatchSize
	}
	if len(families) == 0 {
		return s.send(ctx, nil) // Envoy's message is empty then, and still sent
	}
	for batch := range slices.Chunk(families, size) {
		if err := s.send(ctx, batch); err != nil {
			return err // the rest of the flush is lost
		}
	}
	return nil
}

// send sends one message, over a new stream if there is none.
func (s *sink) send(ctx context.Context, families []*dto.MetricFamily) error {
	m := &metrics.StreamMetricsMessage{EnvoyMetrics: families}
	if s.stream == nil {
		stream, err := open(ctx, s.conn, s.opts.Every)
		if err != nil {
			return err
		}
		s.stream, m.Identifier = stream, s.source.identifier()
	}
	if s.stream.Send(m) != nil { // with io.EOF, whatever the reason
		reason := s.stream.reason()
		s.stream = nil
		return fmt.Errorf("stream has ended: %w", cmp.Or(reason, io.EOF))
	}
	return nil
}

// told logs when the receiver is lost and found.
func (s *sink) told(err error) {
	switch {
	case err != nil && !s.lost:
		s.opts.Log.Warn("metrics are not pushed", "to", s.opts.Target, "error", err)
	case err == nil && s.lost:
		s.opts.Log.Info("metrics are pushed again", "to", s.opts.Target)
	}
	s.lost = err != nil
}

// stream is one call of StreamMetrics.
type stream struct {
	metrics.MetricsService_StreamMetricsClient
	cancel context.CancelFunc
	done   chan struct{} // closed when the receiver has ended it
	err    error         // why, once done; nil or io.EOF if in order
}

// open opens a stream, within patience.
func open(ctx context.Context, conn *grpc.ClientConn, patience time.Duration) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	client, err := metrics.NewMetricsServiceClient(conn).StreamMetrics(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{MetricsService_StreamMetricsClient: client, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = client.RecvMsg(new(metrics.StreamMetricsResponse))
	}()
	return s, nil
}

// ended says whether the stream is no more.
func (s *stream) ended() bool {
	select {
	case <-s.done:
		s.cancel()
		return true
	default:
		return false
	}
}

// reason waits for the end of a stream that cannot be sent to, and gives the
// receiver's reason.
func (s *stream) reason() error {
	<-s.done
	s.cancel()
	return s.err
}

// end ends the stream.
func (s *stream) end() {
	s.cancel()
	<-s.done
}
