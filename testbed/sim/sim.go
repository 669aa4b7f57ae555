// Package sim is the simulated testbed: discrete events in virtual time,
// seeded and exact to repeat. It needs no root and no Linux.
//
// A replica is a queueing station on a node whose cores are shared; a quota
// throttles it as CFS does; messages take half a round-trip time plus the
// sidecars'; routing draws, connections, counters and metrics are modelled as
// the real ones behave. Not modelled: TCP, garbage collection, the kernel's
// scheduler below the level of shares, the CPU of sidecars, packet loss.
package sim

import (
	"context"
	"errors"
	"time"

	"heartbed/heart"
	"heartbed/testbed"
)

// Backend stands up simulated sessions.
type Backend struct{}

// Check always succeeds: the simulator needs nothing.
func (Backend) Check(context.Context) error { return nil }

// Start builds the world of the plan at virtual time zero.
func (Backend) Start(_ context.Context, p testbed.Plan) (testbed.Session, error) {
	w, err := newWorld(p)
	if err != nil {
		return nil, err
	}
	return &session{world: w}, nil
}

// session is a world and whether it has run.
type session struct {
	world *world
	ran   bool
}

// Observe returns what a controller would see now: the newest window of
// scraped counters that is old enough to have been collected.
func (s *session) Observe(context.Context) (heart.Observation, error) {
	return s.world.observe(), nil
}

// Route puts the table into force at once for new requests; open connections
// under per-connection balancing keep their replica.
func (s *session) Route(_ context.Context, table heart.RoutingTable) error {
	return s.world.route(table)
}

// Run plays the plan. It can run once.
func (s *session) Run(ctx context.Context, step func(context.Context) error) (testbed.Measurement, error) {
	if s.ran {
		return testbed.Measurement{}, errors.New("run session: it has run before; start a new one")
	}
	s.ran = true
	return s.world.run(ctx, step)
}

// Close has nothing to release.
func (s *session) Close() error { return nil }

func timeOf(ns int64) time.Duration { return time.Duration(ns) }
