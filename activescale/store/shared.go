package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Shared is the store of several replicas. A stream is pinned to one of them
// and the API asks any, so samples go to Redis. They stay here as well, and so
// do those of other replicas that a query has read, for as long as they are
// fresh: no reader sees an older sample after a newer, and a Redis that starts
// anew and empty is bridged.
//
// While Redis fails, Get answers only if this replica has a fresh sample of
// every pod that is asked for, and else is an error: half of the pods are no
// answer, and nobody's silence is zero. The same holds while Redis answers but
// takes no writes, as a full one does, for then what it lacks may be there.
//
// Streams open also while Redis is down. Their epochs are numbered here, above
// all that this replica has seen and the milliseconds since 1970, as Redis'
// counter is, and at the first write that succeeds again the counter is lifted
// above them. So only a pod that changes the replica while Redis is down, to one
// whose clock is behind, meets a wrong order, and that for one time to live.
type Shared struct {
	local  *Local
	remote *Redis
	// reads and writes fail apart: a full Redis still answers.
	reads, writes breaker
	ahead         atomic.Bool // epochs were numbered here that Redis does not know of
}

var _ Store = (*Shared)(nil)

// NewShared joins the Redis with samples kept here for the same time. Close
// closes the Redis.
func NewShared(r *Redis) *Shared { return &Shared{local: NewLocal(r.TTL), remote: r} }

// Open fails only with its context.
func (s *Shared) Open(ctx context.Context) (epoch uint64, err error) {
	err = s.write(ctx, func() error {
		epoch, err = s.remote.Open(ctx)
		return err
	})
	if err == nil {
		return epoch, nil
	}
	if ctx.Err() != nil {
		return 0, err
	}
	s.ahead.Store(true)
	return s.remote.provisional(), nil
}

// Put fails only for a sample that cannot be kept: what Redis does not take is
// kept here, and Health tells of it.
func (s *Shared) Put(ctx context.Context, pod Pod, sample Sample) error {
	if err := s.local.Put(ctx, pod, sample); err != nil {
		return err
	}
	err := s.write(ctx, func() error { return s.remote.Put(ctx, pod, sample) })
	if err == nil && s.ahead.CompareAndSwap(true, false) {
		s.lift(ctx)
	}
	return nil
}

// lift lets Redis count on from the epochs that were numbered here.
func (s *Shared) lift(ctx context.Context) {
	err := s.write(ctx, func() error {
		_, err := s.remote.Open(ctx)
		return err
	})
	if err != nil {
		s.ahead.Store(true)
	}
}

func (s *Shared) Get(ctx context.Context, pods []Pod) (map[Pod]Sample, error) {
	err := s.reads.do(ctx, func() error {
		theirs, err := s.remote.Get(ctx, pods)
		s.local.learn(theirs)
		return err
	})
	s.tell()
	if err == nil {
		err = s.writes.health()
	}
	found, localErr := s.local.Get(ctx, pods)
	if localErr != nil {
		return nil, localErr
	}
	if err != nil && !covers(found, pods) {
		return nil, fmt.Errorf("%d of %d pods are known to this replica, the others to redis: %w", len(found), len(pods), err)
	}
	return found, nil
}

func covers(found map[Pod]Sample, pods []Pod) bool {
	for _, pod := range pods {
		if _, ok := found[pod]; !ok {
			return false
		}
	}
	return true
}

func (s *Shared) write(ctx context.Context, call func() error) error {
	err := s.writes.do(ctx, call)
	s.tell()
	return err
}

// Health says what is degraded, since when and why; nil is nothing. The replica
// still serves: Redis is no reason to take it out.
func (s *Shared) Health() error {
	var faults []error
	if err := s.reads.health(); err != nil {
		faults = append(faults, fmt.Errorf("samples of other replicas cannot be read %w", err))
	}
	if err := s.writes.health(); err != nil {
		faults = append(faults, fmt.Errorf("samples cannot be shared with other replicas %w", err))
	}
	return errors.Join(faults...)
}

// tell sets the metric.
func (s *Shared) tell() {
	degraded := 0.0
	if s.reads.failing() || s.writes.failing() {
		degraded = 1
	}
	s.remote.m.degraded.Set(degraded)
}

func (s *Shared) Close() error { return errors.Join(s.local.Close(), s.remote.Close()) }
