package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"heartbed/heart"
)

// Options say what the tables are about.
type Options struct {
	// Addresses are where the replicas serve gRPC, by replica. A replica that
	// no caller sends requests to needs none.
	Addresses map[string]netip.AddrPort
	Topology  heart.Topology
	// NewConnectionPerRequest says that callers open a connection for every
	// request, so that a per-connection route draws a replica for every
	// request.
	NewConnectionPerRequest bool
}

// Server is a heart.Router that serves tables over xDS. Its methods may be
// called concurrently.
type Server struct {
	perRequest bool
	snapshots  cache.SnapshotCache
	acks       *acks
	grpc       *grpc.Server
	cancel     context.CancelFunc

	mu        sync.Mutex // of what follows, and so that tables come into force one after the other
	topology  heart.Topology
	addresses map[string]netip.AddrPort
	table     *heart.RoutingTable // in force; nil before the first
	callers   []string            // replicas with a snapshot
}

var _ heart.Router = (*Server)(nil)

// New returns a server without a table: callers that ask wait for the first.
// Faults of the options are reported by Route.
func New(o Options) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		perRequest: o.NewConnectionPerRequest, acks: newAcks(), cancel: cancel,
		topology: o.Topology, addresses: maps.Clone(o.Addresses),
		// Not the cache's own ADS mode: that answers only a client which asks for
		// every resource at once, and gRPC asks on a stream for each target.
		snapshots: cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		grpc: grpc.NewServer(
			// A vanished client must not keep its stream, and a client may look
			// after its connection as often as gRPC lets it (10 s).
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
			grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		),
	}
	discovery.RegisterAggregatedDiscoveryServiceServer(s.grpc, xserver.NewServer(ctx, s.snapshots, s.acks.callbacks()))
	return s
}

// Serve answers clients on the listener until Stop.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve xDS: %w", err)
	}
	return nil
}

// Stop ends Serve and every stream at once. Clients keep the table they have.
func (s *Server) Stop() {
	s.cancel()
	s.grpc.Stop()
}

// Route puts the table into force for every caller replica. It returns once
// the table is on its way; WaitAcked says when it has arrived. A faulty table
// changes nothing. Shares of weight zero are left out. A table that is in
// force already is not sent again.
func (s *Server) Route(ctx context.Context, table heart.RoutingTable) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.route(ctx, table)
}

// SetReplicas tells the server of other replicas or addresses. The table in
// force is sent again with the new addresses; if it does not fit the new
// topology, an error says so and callers keep what they have until the next
// Route, which uses the new topology.
func (s *Server) SetReplicas(ctx context.Context, topology heart.Topology, addresses map[string]netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topology, s.addresses = topology, maps.Clone(addresses)
	if s.table == nil {
		return nil
	}
	return s.route(ctx, *s.table)
}

func (s *Server) route(ctx context.Context, table heart.RoutingTable) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	if err := table.Validate(s.topology); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	b := builder{addresses: s.addresses, perRequest: s.perRequest}
	snapshots, err := b.snapshots(table)
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	if err := s.publish(ctx, snapshots); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	s.table = &table
	return nil
}

// publish replaces the snapshots of all callers.
func (s *Server) publish(ctx context.Context, snapshots map[string]snapshot) error {
	ctx = context.WithoutCancel(ctx) // all callers or none
	callers := slices.Sorted(maps.Keys(snapshots))
	s.acks.published(snapshots)
	for _, name := range callers {
		if err := s.snapshots.SetSnapshot(ctx, name, snapshots[name].resources); err != nil {
			return fmt.Errorf("replica %q: %w", name, err)
		}
	}
	for _, name := range s.callers {
		if _, still := snapshots[name]; !still {
			s.snapshots.ClearSnapshot(name)
		}
	}
	s.callers = callers
	return nil
}

// Acks tells of every caller replica, in order of names, what it has accepted.
func (s *Server) Acks() []Ack { return s.acks.list() }

// WaitAcked waits until every caller replica has accepted the table in force
// and returns the time from Route to the last acceptance; the picks of a
// client follow within milliseconds. A refusal ends the wait with ErrRefused.
// When ctx ends first the error names the replicas that are missing.
func (s *Server) WaitAcked(ctx context.Context) (time.Duration, error) {
	return s.acks.wait(ctx)
}
