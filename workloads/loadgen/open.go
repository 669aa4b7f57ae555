package loadgen

import (
	"context"
	"math/rand/v2"
	"time"

	"heartbed/workloads"
)

// open offers an open schedule and waits for the answers. One goroutine keeps
// the time and writes to the connections itself; each connection has a
// goroutine that reads. It fails only if the machine has no timer.
func (r *run) open(ctx context.Context, first []*slot) error {
	clock, err := newClock(ctx, r.config.Spin)
	if err != nil {
		return err
	}
	defer clock.close()
	for _, s := range first {
		r.pool.open++
		r.pool.free.push(s)
		r.wait.Go(func() { r.receive(ctx, s) })
	}
	r.recorder.opened = r.pool.open
	arrivals := workloads.NewArrivals(r.config.Load, r.config.RPS, rand.New(rand.NewPCG(r.config.Seed, r.config.Run)))
	for {
		due, more := arrivals.Next()
		if !more || due >= r.config.Duration {
			break
		}
		if clock.until(r.began.Add(due)) != nil {
			return nil // interrupted
		}
		r.dispatch(ctx, due)
	}
	if clock.until(r.began.Add(r.config.Duration)) == nil {
		r.drain(ctx)
	}
	return nil
}

// dispatch sends a request that is due now on a free connection, on a new one,
// or lets it wait where the load limits the connections.
func (r *run) dispatch(ctx context.Context, due time.Duration) {
	r.mu.Lock()
	q := r.newRequest(due)
	r.recorder.offer(due)
	r.pool.pending++
	now := r.now()
	r.recorder.late(q.due, now-q.due)
	s := r.pool.take()
	if s == nil {
		r.pool.waiting.push(q)
		r.connect(ctx)
		r.mu.Unlock()
		return
	}
	r.leave(s, q, now)
	r.mu.Unlock()
	r.send(s)
}

// connect opens a connection for the request that has waited the longest, if
// the limit allows one. mu is held.
func (r *run) connect(ctx context.Context) {
	limit := r.config.Load.Connections
	if r.pool.waiting.len() == 0 || limit > 0 && r.pool.open >= limit {
		return
	}
	q := r.pool.waiting.pop()
	r.pool.open++
	r.recorder.opened = max(r.recorder.opened, r.pool.open)
	r.wait.Go(func() {
		if s := r.opened(ctx, q); s != nil {
			r.send(s)
			r.receive(ctx, s)
		}
	})
}

// opened dials and gives the new slot the request; nil if that failed.
func (r *run) opened(ctx context.Context, q request) *slot {
	dialing, cancel := r.dialing(ctx, q.due)
	c, err := r.dialer.dial(dialing)
	cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over || ctx.Err() != nil:
		if err == nil {
			c.close()
		}
		return nil
	case err == nil:
		s := &slot{conn: c}
		r.slots[s] = true
		r.leave(s, q, r.now())
		return s
	}
	r.unopened(q, r.now(), err)
	r.pool.pending--
	r.stopped()
	r.pool.open--
	r.connect(ctx)
	return nil
}

// receive reads the answers of a connection until it is of no more use.
func (r *run) receive(ctx context.Context, s *slot) {
	defer s.conn.close()
	for {
		a, err := s.conn.receive()
		again, more := r.received(ctx, s, a, err)
		if !more {
			return
		}
		if again {
			r.send(s)
		}
	}
}

// received books what a connection received. more says whether it goes on,
// again whether it has been given the next request.
func (r *run) received(ctx context.Context, s *slot, a answer, err error) (again, more bool) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false, false
	}
	asked, usable := r.arrived(s, now, a, err)
	if asked {
		r.pool.pending--
		defer r.stopped()
	}
	if !usable {
		s.dead = true
		r.pool.open--
		r.connect(ctx)
		return false, false
	}
	for r.pool.waiting.len() > 0 {
		q := r.pool.waiting.pop()
		if !r.expired(q.due, now) {
			r.leave(s, q, now)
			return true, true
		}
		r.recorder.end(q, now, fateTimedOut, nil)
		r.pool.pending--
	}
	r.pool.free.push(s)
	return false, true
}

// drain waits until every request has ended: with a timeout all do soon after
// it, without one for drainLimit at most.
func (r *run) drain(ctx context.Context) {
	limit := drainLimit
	if timeout := r.config.Load.Timeout.Std(); timeout > 0 {
		limit = timeout + time.Second
	}
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		r.mu.Lock()
		pending := r.pool.pending
		r.mu.Unlock()
		if pending == 0 {
			return
		}
		select {
		case <-r.changed:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
