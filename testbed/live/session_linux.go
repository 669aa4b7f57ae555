package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"heartbed/heart"
	"heartbed/heart/xds"
	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/workloads/loadgen"
)

// Session is a plan that stands. A backend fills it while it sets the plan up.
type Session struct {
	Layout     Layout
	NodeGroups []*tc.Group // in the order of Layout.Nodes
	Groups     []*tc.Group // in the order of Layout.Replicas; nil = CPU time comes from the exporters
	Shapers    []tc.Shaper
	Scraper    *Scraper
	Dial       DialFunc // from where the load generator stands
	// Offer offers a load from there, for a generator that is not in this
	// process; nil = here, over Dial, before the replicas for the CPU.
	Offer func(context.Context, loadgen.Config) (loadgen.Result, error)
	Setup []testbed.SetupCheck
	Notes []string // warnings of the run

	Remote bool // the plan stands on other machines than this

	Routes    *xds.Server
	served    chan struct{} // closed when Routes is served no more
	servedErr error         // why, once it is
	told      told

	ran    bool
	mu     sync.Mutex // of what follows
	Began  time.Time  // start of the warm-up; zero before
	tables []testbed.TimedTable
}

// How long the callers may take to accept a table: one that runs, and one that
// has just started. The latter has tried to connect since its process began, and
// waits between two tries for as long again as it has waited in all.
const (
	routeLimit      = 20 * time.Second
	firstRouteLimit = time.Minute
)

// ServeXDS serves the routes of the plan on a listener.
func (s *Session) ServeXDS(listener net.Listener) {
	addresses := map[string]netip.AddrPort{}
	for _, r := range s.Layout.Replicas {
		addresses[r.Name] = netip.AddrPortFrom(r.Addr, GRPCPort)
	}
	s.told = told{}
	s.Routes = xds.New(xds.Options{
		Addresses: addresses, Topology: s.Layout.Topology,
		NewConnectionPerRequest: s.Layout.Plan.Network.Connections == 0,
	})
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		s.servedErr = s.Routes.Serve(listener)
	}()
}

// Observe returns the newest window of scraped counters that is old enough to
// have been collected.
func (s *Session) Observe(context.Context) (heart.Observation, error) {
	return observe(s.Layout.Topology, s.Scraper.recent(time.Now())), nil
}

// Route puts the table into force and waits until every caller has accepted
// it; new requests follow it, open connections under per-connection balancing
// keep their replica. Without the xDS server the callers keep what they have.
func (s *Session) Route(ctx context.Context, table heart.RoutingTable) error {
	if err := s.gone(); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	if err := s.Routes.Route(ctx, table); err != nil {
		return err
	}
	if err := s.awaitAcks(ctx); err != nil {
		return fmt.Errorf("route: wait for the callers to accept the table: %w", err)
	}
	if err := s.tellBalancers(ctx, table); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Duration(0)
	if !s.Began.IsZero() {
		at = time.Since(s.Began)
	}
	s.tables = append(s.tables, testbed.TimedTable{At: at, Table: table})
	return nil
}

func (s *Session) awaitAcks(ctx context.Context) error {
	limit := routeLimit
	s.mu.Lock()
	if s.Began.IsZero() {
		limit = firstRouteLimit
	}
	s.mu.Unlock()
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	go func() {
		select {
		case <-s.served:
			cancel()
		case <-waiting.Done():
		}
	}()
	_, err := s.Routes.WaitAcked(waiting)
	if gone := s.gone(); err != nil && gone != nil {
		return gone
	}
	return err
}

// gone says why xDS is not served any more; nil = it is.
func (s *Session) gone() error {
	select {
	case <-s.served:
	default:
		return nil
	}
	err := errors.New("the xDS server has ended, callers keep the table they have")
	if s.servedErr != nil {
		err = fmt.Errorf("%w: %w", err, s.servedErr)
	}
	return err
}

// WatchFunc calls report for the first thing that makes a run worthless, until
// the function it returns is called, which waits until no report can come.
type WatchFunc func(report func(error)) (unwatch func())

// Play offers the plan's load in real time. It can run once. What watch
// reports meanwhile ends the run with that error.
func (s *Session) Play(ctx context.Context, step func(context.Context) error, watch WatchFunc) (testbed.Measurement, error) {
	if s.ran {
		return testbed.Measurement{}, errors.New("run session: it has run before; start a new one")
	}
	s.ran = true
	ctx, crash := context.WithCancelCause(ctx)
	defer crash(nil)
	defer watch(func(err error) { crash(err) })()
	restore := func() error { return nil }
	if s.Offer == nil {
		normal, err := RealTime()
		if err != nil {
			s.Notes = append(s.Notes, fmt.Sprintf("the load generator competes with the replicas for CPU: %v", err))
		} else {
			restore = normal
		}
	}
	m, err := s.measure(ctx, step)
	err = errors.Join(err, restore())
	if cause := context.Cause(ctx); cause != nil {
		return testbed.Measurement{}, fmt.Errorf("run session: %w", cause)
	}
	if err != nil {
		return testbed.Measurement{}, fmt.Errorf("run session: %w", err)
	}
	return m, nil
}

// Close stops what serves and shapes. The backend undoes the rest.
func (s *Session) Close() error {
	var errs []error
	if s.Routes != nil {
		s.Routes.Stop()
		<-s.served
		errs = append(errs, s.servedErr)
	}
	if s.Scraper != nil {
		s.Scraper.Close()
	}
	for _, shaper := range s.Shapers {
		errs = append(errs, shaper.Close())
	}
	return errors.Join(errs...)
}
