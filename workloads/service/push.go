package service

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"heartbed/workloads/push"
)

// Push says where a replica reports its requests in flight, as the proxy beside
// it would if it had one: see package push.
type Push struct {
	To string // gRPC target of the receiver; "" = nowhere, and nothing is counted for it
	// Every is the flush interval; 0 = push.DefaultEvery.
	Every time.Duration
	// Pod, Namespace and IP are whom it reports for; "" = Config.Replica, the
	// defaults of push.Options.
	Pod, Namespace, IP string
}

// proxy counts what the proxy beside a replica would: requests from their
// arrival to the last byte of the answer, also while they wait in the replica's
// queue, those that the replica sends, and its clients' connections.
type proxy struct {
	served, sent push.Meter
	connections  atomic.Int64
	accepted     atomic.Uint64
}

// newProxy gives nil, which costs nothing, if nobody wants to know.
func newProxy(p Push) *proxy {
	if p.To == "" {
		return nil
	}
	return &proxy{}
}

// dial gives what counts the requests that the replica sends.
func (p *proxy) dial() []grpc.DialOption {
	if p == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(requests{&p.sent})}
}

// server gives what counts requests over gRPC, and their connections.
func (p *proxy) server() []grpc.ServerOption {
	if p == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(requestsAndConnections{requests{&p.served}, p})}
}

// http makes a server count requests and connections.
func (p *proxy) http(s *http.Server) {
	if p == nil {
		return
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		arrived := time.Now()
		p.served.Begin()
		defer func() { p.served.End(time.Since(arrived)) }()
		next.ServeHTTP(w, req)
	})
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			p.connected()
		case http.StateClosed, http.StateHijacked:
			p.connections.Add(-1)
		}
	}
}

func (p *proxy) connected() {
	p.accepted.Add(1)
	p.connections.Add(1)
}

// run pushes until ctx ends; port is where the replica takes requests.
func (p *proxy) run(ctx context.Context, cfg Config, port int) error {
	o := push.Options{
		Target: cfg.Push.To, Every: cfg.Push.Every, Pod: cmp.Or(cfg.Push.Pod, cfg.Replica), Namespace: cfg.Push.Namespace, IP: cfg.Push.IP,
		Port: port, Read: p.read,
	}
	if cfg.Gateway {
		o.Type, o.Read = push.Router, p.readGateway
	}
	return push.Run(ctx, o)
}

func (p *proxy) read() push.Values {
	return push.Values{Inbound: p.served.Read(), Outbound: p.sent.Read(), Connections: p.connections.Load(), Accepted: p.accepted.Load()}
}

// readGateway calls outbound what comes in, as Istio's gateways do: they pass
// it on.
func (p *proxy) readGateway() push.Values {
	return push.Values{Outbound: p.served.Read(), Connections: p.connections.Load(), Accepted: p.accepted.Load()}
}

// requests counts those of a gRPC client or server.
type requests struct{ meter *push.Meter }

var _ stats.Handler = requests{}

func (requests) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (r requests) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.Begin:
		r.meter.Begin()
	case *stats.End:
		r.meter.End(s.EndTime.Sub(s.BeginTime))
	}
}

func (requests) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (requests) HandleConn(context.Context, stats.ConnStats) {}

// requestsAndConnections counts those of a gRPC server.
type requestsAndConnections struct {
	requests
	proxy *proxy
}

func (r requestsAndConnections) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		r.proxy.connected()
	case *stats.ConnEnd:
		r.proxy.connections.Add(-1)
	}
}
