package netns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"heartbed/heart"
	"heartbed/heart/xds"
	"heartbed/tc"
	"heartbed/testbed"
)

// session is a plan that stands in namespaces.
type session struct {
	options Options
	layout  layout
	run     string
	journal *journal

	folder         string
	program        string   // path of the workload program
	bridge, client string   // namespaces
	nodes          []string // namespaces, in the order of the plan's nodes
	nodeGroups     []*tc.Group
	groups         []*tc.Group // in the order of layout.replicas
	shapers        []tc.Shaper
	processes      []*process
	routes         *xds.Server
	served         chan struct{} // closed when routes is served no more
	servedErr      error         // why, once it is
	scraper        *scraper
	told           told
	setup          []testbed.SetupCheck
	notes          []string // warnings of the run

	ran    bool
	closed bool
	mu     sync.Mutex // of what follows
	began  time.Time  // start of the warm-up; zero before
	tables []testbed.TimedTable
}

// routeLimit is how long the callers may take to accept a table.
const routeLimit = 20 * time.Second

// Observe returns the newest window of scraped counters that is old enough to
// have been collected.
func (s *session) Observe(context.Context) (heart.Observation, error) {
	return observe(s.layout.topology, s.scraper.recent(time.Now())), nil
}

// Route puts the table into force and waits until every caller has accepted
// it; new requests follow it, open connections under per-connection balancing
// keep their replica. Without the xDS server the callers keep what they have.
func (s *session) Route(ctx context.Context, table heart.RoutingTable) error {
	if err := s.gone(); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	if err := s.routes.Route(ctx, table); err != nil {
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
	if !s.began.IsZero() {
		at = time.Since(s.began)
	}
	s.tables = append(s.tables, testbed.TimedTable{At: at, Table: table})
	return nil
}

func (s *session) awaitAcks(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, routeLimit)
	defer cancel()
	go func() {
		select {
		case <-s.served:
			cancel()
		case <-waiting.Done():
		}
	}()
	_, err := s.routes.WaitAcked(waiting)
	if gone := s.gone(); err != nil && gone != nil {
		return gone
	}
	return err
}

// gone says why xDS is not served any more; nil = it is.
func (s *session) gone() error {
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

// Run offers the plan's load in real time. It can run once. A process that
// ends meanwhile ends the run with an error that says how.
func (s *session) Run(ctx context.Context, step func(context.Context) error) (testbed.Measurement, error) {
	if s.ran {
		return testbed.Measurement{}, errors.New("run session: it has run before; start a new one")
	}
	s.ran = true
	ctx, crash := context.WithCancelCause(ctx)
	defer crash(nil)
	defer watch(s.processes, func(err error) { crash(err) })()
	restore, err := realTime()
	if err != nil {
		s.notes = append(s.notes, fmt.Sprintf("the load generator competes with the replicas for CPU: %v", err))
		restore = func() error { return nil }
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

// Close ends all that the session started and undoes what it changed. Closing
// again does nothing.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, p := range slices.Backward(s.processes) {
		errs = append(errs, p.stop())
	}
	if s.routes != nil {
		s.routes.Stop()
		<-s.served
		errs = append(errs, s.servedErr)
	}
	s.scraper.http.CloseIdleConnections()
	for _, shaper := range s.shapers {
		errs = append(errs, shaper.Close())
	}
	errs = append(errs, s.journal.file.Close())
	entries, err := readJournal(s.journal.path)
	errs = append(errs, err)
	if err == nil {
		_, err = replay(context.Background(), s.journal.path, entries)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
