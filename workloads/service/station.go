package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"heartbed/workloads"
)

// quantum is the turn of a request when several share a thread: short against
// any service time, so that turns approach processor sharing, and long against
// the cost of a turn.
const quantum = 200 * time.Microsecond

// station is the replica's CPU. Up to slots requests are in service, the rest
// wait in order of arrival; those in service burn in turn, as many at a time
// as Server.Threads, so that a replica uses no more cores than its model,
// whatever GOMAXPROCS is. A request burns on its own goroutine: a worker thread
// to hand it to would cost two context switches, which is much for a replica
// that a few requests a second find asleep.
type station struct {
	slots, threads turnstile
}

// newStation fails with errors.ErrUnsupported where the system has no CPU
// clock of threads.
func newStation(s workloads.Server) (*station, error) {
	if !hasThreadClock {
		return nil, fmt.Errorf("read cpu time of a thread: %w", errors.ErrUnsupported)
	}
	return &station{slots: turnstile{places: s.Slots}, threads: turnstile{places: int(math.Ceil(s.Threads))}}, nil
}

// enter waits for a slot, unless ctx ends first. Who has entered must leave.
func (s *station) enter(ctx context.Context) error { return s.slots.enter(ctx) }

// leave hands the slot to the one who waits longest.
func (s *station) leave() { s.slots.leave() }

// burn returns when ns of CPU time were used for the caller, or ctx has ended.
func (s *station) burn(ctx context.Context, ns int64) error {
	for ns > 0 {
		if err := s.threads.enter(ctx); err != nil {
			return err
		}
		for ns > 0 && ctx.Err() == nil {
			ns -= spin(min(ns, int64(quantum)))
			if s.threads.wanted() {
				break
			}
		}
		s.threads.leave()
		if ns > 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// spin uses at least ns of CPU time and returns how much it used. A throttled
// or preempted thread's clock stands still. The goroutine is not locked to its
// thread: the Go runtime preempts it after every throttled period, and a locked
// thread would hand its processor over and get it back by two context switches.
// The few microseconds in which it changes threads are not counted.
func spin(ns int64) (used int64) {
	thread, last := threadCPU()
	for x := uint64(1); used < ns && x != 0; {
		for range 5000 { // some microseconds between two looks at the clock
			x = x*6364136223846793005 + 1442695040888963407
		}
		before, since := thread, last
		if thread, last = threadCPU(); thread == before {
			used += last - since
		}
	}
	return used
}

// turnstile lets so many in at a time, the others in order of arrival.
type turnstile struct {
	places int // 0 = no limit

	mu      sync.Mutex
	entered int             // in now
	waiting []chan struct{} // closed when the place is granted
}

// enter waits for a place, unless ctx ends first. Who has entered must leave.
func (t *turnstile) enter(ctx context.Context) error {
	t.mu.Lock()
	if t.places == 0 || t.entered < t.places {
		t.entered++
		t.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	t.waiting = append(t.waiting, granted)
	t.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, granted)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // granted in the meantime
		t.leave()
	}
	return ctx.Err()
}

// leave hands the place to the one who waits longest.
func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.entered--
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}

// wanted says whether somebody waits for a place.
func (t *turnstile) wanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting) > 0
}
