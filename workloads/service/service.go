package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Service is a replica whose ports are open.
type Service struct {
	cfg      Config
	replica  *replica
	callees  map[string]*callee
	station  *station // nil for a gateway, which burns nothing
	proxy    *proxy   // nil if nothing is pushed
	requests net.Listener
	metrics  net.Listener // nil = none
	ready    atomic.Bool
}

// Run serves cfg's replica until ctx ends and what is in flight was answered.
func Run(ctx context.Context, cfg Config) error {
	s, err := New(cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// New opens the ports of a replica and connects to its callees; Run must
// follow. dial is added to the options of every client connection.
func New(cfg Config, dial ...grpc.DialOption) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("service config: %w", err)
	}
	s := &Service{cfg: cfg.withDefaults(), proxy: newProxy(cfg.Push)}
	if err := s.open(dial); err != nil {
		return nil, errors.Join(fmt.Errorf("start replica %s: %w", cfg.Replica, err), s.close())
	}
	return s, nil
}

func (s *Service) open(dial []grpc.DialOption) (err error) {
	if s.requests, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return err
	}
	if s.cfg.Metrics != "" {
		if s.metrics, err = net.Listen("tcp", s.cfg.Metrics); err != nil {
			return err
		}
	}
	if !s.cfg.Gateway {
		if s.station, err = newStation(s.cfg.App.Server); err != nil {
			return err
		}
	}
	if s.callees, err = dialCallees(s.cfg, append(s.proxy.dial(), dial...)); err != nil {
		return err
	}
	s.replica = &replica{cfg: s.cfg, callees: s.callees, metrics: newExporter(s.cfg), program: compile(s.cfg, s.station, s.callees)}
	return nil
}

// close lets go of what open took.
func (s *Service) close() error {
	err := closeAll(s.callees)
	for _, l := range []net.Listener{s.requests, s.metrics} {
		if l == nil {
			continue
		}
		if e := l.Close(); !errors.Is(e, net.ErrClosed) { // its server closes it, too
			err = errors.Join(err, e)
		}
	}
	return err
}

// Addr is where requests are taken.
func (s *Service) Addr() net.Addr { return s.requests.Addr() }

// MetricsAddr is where /metrics and /ready are, nil if nowhere.
func (s *Service) MetricsAddr() net.Addr {
	if s.metrics == nil {
		return nil
	}
	return s.metrics.Addr()
}

// Run serves until ctx ends, then takes no more requests and finishes those
// in flight; those cut off after Config.Drain are an error.
func (s *Service) Run(ctx context.Context) error {
	failed := make(chan error, 2)
	front := s.front()
	go func() { failed <- front.serve(s.requests) }()
	export := &http.Server{Handler: s.replica.handler(s.ready.Load), ReadHeaderTimeout: pingAfter}
	if s.metrics != nil {
		go func() { failed <- export.Serve(s.metrics) }()
	}
	ended := s.push()
	s.ready.Store(true)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serve replica %s: %w", s.cfg.Replica, err)
	}
	s.ready.Store(false)
	return errors.Join(err, s.drain(front), ended(), export.Close(), s.close())
}

// push reports what is in flight, also while that is finished, until the
// returned function is called.
func (s *Service) push() (end func() error) {
	if s.proxy == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.proxy.run(ctx, s.cfg, s.requests.Addr().(*net.TCPAddr).Port) }()
	return func() error { cancel(); return <-ended }
}

// drain finishes the requests in flight, within bounds.
func (s *Service) drain(front front) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Drain)
	defer cancel()
	cut := make(chan int64, 1)
	stop := context.AfterFunc(ctx, func() {
		cut <- s.replica.metrics.inside.Load()
		front.abort()
	})
	front.drain()
	if stop() {
		return nil
	}
	if n := <-cut; n > 0 {
		return fmt.Errorf("drain replica %s: %d requests cut off after %v", s.cfg.Replica, n, s.cfg.Drain)
	}
	return nil
}

// front is the server of the protocol by which requests come.
type front struct {
	serve func(net.Listener) error
	drain func() // returns when all is answered, or aborted
	abort func()
}

func (s *Service) front() front {
	if s.cfg.Gateway {
		return httpFront(s.replica, s.proxy)
	}
	server := grpc.NewServer(append(s.proxy.server(),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true))...)
	server.RegisterService(s.replica.serviceDesc(), nil)
	return front{serve: server.Serve, drain: server.GracefulStop, abort: server.Stop}
}

// httpFront serves HTTP/1.1 with keep-alive.
func httpFront(h http.Handler, p *proxy) front {
	base, cancel := context.WithCancel(context.Background())
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: pingAfter,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	p.http(server)
	return front{
		serve: server.Serve,
		drain: func() {
			_ = server.Shutdown(base) // its error is the abort, which drain reports
			cancel()
		},
		abort: cancel,
	}
}
