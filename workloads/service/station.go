package service

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"heartbed/workloads"
)

// quantum is the turn of a job when several share a thread: short against any
// service time, so that turns approach processor sharing, and long against
// the cost of a turn.
const quantum = 200 * time.Microsecond

// station is the replica's CPU. Up to slots requests are in service, the rest
// wait in order of arrival; workers on OS threads of their own burn the jobs
// in service in turn. The workers are as many as Server.Threads, so that a
// replica uses no more cores than its model, whatever GOMAXPROCS is.
type station struct {
	slots   int // 0 = no limit
	workers sync.WaitGroup

	mu      sync.Mutex
	entered int             // slots in use
	waiting []chan struct{} // for a slot; closed when it is granted
	ready   []*job          // in service and not being burnt now
	wake    *sync.Cond      // a job is ready, or the station closes
	closed  bool
}

// job is CPU time to burn.
type job struct {
	ctx  context.Context
	left int64         // ns; read by others after done only
	done chan struct{} // closed when nothing is left, or ctx has ended
}

// newStation starts the workers. The error wraps errors.ErrUnsupported where
// the system has no CPU clock of threads.
func newStation(s workloads.Server) (*station, error) {
	if _, err := threadCPU(); err != nil {
		return nil, fmt.Errorf("read cpu time of a thread: %w", err)
	}
	st := &station{slots: s.Slots}
	st.wake = sync.NewCond(&st.mu)
	for range int(math.Ceil(s.Threads)) {
		st.workers.Go(st.work)
	}
	return st, nil
}

// close ends the workers. Nobody may be burning any more.
func (s *station) close() {
	s.mu.Lock()
	s.closed = true
	s.wake.Broadcast()
	s.mu.Unlock()
	s.workers.Wait()
}

// enter waits for a slot, unless ctx ends first. Who has entered must leave.
func (s *station) enter(ctx context.Context) error {
	s.mu.Lock()
	if s.slots == 0 || s.entered < s.slots {
		s.entered++
		s.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	s.waiting = append(s.waiting, granted)
	s.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiting, granted)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // granted in the meantime
		s.leave()
	}
	return ctx.Err()
}

// leave hands the slot to the one who waits longest.
func (s *station) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.entered--
		return
	}
	close(s.waiting[0])
	s.waiting = s.waiting[1:]
}

// burn returns when ns of CPU time were used for the caller, or ctx has ended.
func (s *station) burn(ctx context.Context, ns int64) error {
	j := &job{ctx: ctx, left: ns, done: make(chan struct{})}
	s.mu.Lock()
	s.ready = append(s.ready, j)
	s.wake.Signal()
	s.mu.Unlock()
	<-j.done
	if j.left > 0 {
		return ctx.Err()
	}
	return nil
}

// work burns a quantum of the job that is first in line, again and again.
func (s *station) work() {
	runtime.LockOSThread() // the clock is the thread's
	defer runtime.UnlockOSThread()
	for j := s.take(nil); j != nil; {
		j.left -= spin(min(j.left, int64(quantum)))
		if j.left <= 0 || j.ctx.Err() != nil {
			close(j.done)
			j = nil
		}
		j = s.take(j)
	}
}

// take puts j, if any, at the end of the line and waits for the first; nil
// when the station closes.
func (s *station) take(j *job) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j != nil {
		s.ready = append(s.ready, j)
	}
	for len(s.ready) == 0 {
		if s.closed {
			return nil
		}
		s.wake.Wait()
	}
	first := s.ready[0]
	s.ready = s.ready[1:]
	return first
}

// spin uses at least ns of the calling thread's CPU time and returns how much
// it used. A throttled or preempted thread's clock stands still.
func spin(ns int64) int64 {
	start, _ := threadCPU() // newStation has seen it work
	for x := uint64(1); ; {
		for range 2000 { // a few microseconds between two looks at the clock
			x = x*6364136223846793005 + 1442695040888963407
		}
		if now, _ := threadCPU(); now-start >= ns || x == 0 {
			return now - start
		}
	}
}
