package loadgen

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"heartbed/workloads"
)

// drainLimit is how long an open schedule waits after its end for answers
// when there is no client timeout.
const drainLimit = 60 * time.Second

// Run offers the load and gives what was measured. It fails when the
// configuration makes no sense (ErrConfig) or the target cannot be reached at
// the start. If ctx ends, so does the run: the result then covers the time so
// far and the error is that of ctx.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	to, err := parseTarget(c.Target)
	if err != nil {
		return Result{}, err
	}
	r := &run{config: c, dialer: newDialer(to, c), slots: map[*slot]bool{}, changed: make(chan struct{}, 1)}
	// Whatever still runs when the result is made ends with this context.
	inner, cancel := context.WithCancel(ctx)
	defer r.wait.Wait()
	defer cancel()
	first, err := r.warm(inner)
	if err != nil {
		return Result{}, fmt.Errorf("connect to %s: %w", c.Target, err)
	}
	r.began = time.Now()
	r.recorder = newRecorder(c)
	r.report(inner)
	stopMeter := r.meter(inner)
	if c.ClosedLoop || c.Load.Schedule == "wrk2" {
		r.paced(inner, first)
	} else {
		err = r.open(inner, first)
	}
	result := r.result()
	result.Hiccups = stopMeter()
	return result, errors.Join(err, ctx.Err())
}

// meter measures hiccups, if they are asked for, until stop is called.
func (r *run) meter(ctx context.Context) (stop func() *hdrhistogram.Histogram) {
	if !r.config.Hiccups {
		return func() *hdrhistogram.Histogram { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	measured := make(chan *hdrhistogram.Histogram, 1)
	go func() { measured <- hiccups(ctx) }()
	return func() *hdrhistogram.Histogram {
		cancel()
		return <-measured
	}
}

// run is a load that is being offered. mu guards everything below it.
type run struct {
	config Config
	dialer dialer
	began  time.Time
	wait   sync.WaitGroup // of all goroutines
	// changed tells a draining schedule that a request has left the system.
	changed chan struct{}

	mu       sync.Mutex
	over     bool // the result is made: what happens now is not part of it
	recorder recorder
	requests uint64         // of the schedule so far, the number of the last
	slots    map[*slot]bool // the open connections
	pool     pool           // open schedule
	conns    []pacer        // wrk2 schedule and closed loop
}

// slot is a connection and the request that is outstanding on it.
type slot struct {
	conn      conn
	busy      bool
	dead      bool // closed while it was free
	request   request
	sendFault error
}

// request is one request of a schedule; times count from the start.
type request struct {
	due, sent time.Duration
	draw      uint64
}

// newRequest is the next request of the run. One that is given up before it
// leaves has its number, too, as in the simulator.
func (r *run) newRequest(due time.Duration) request {
	r.requests++
	return request{due: due, draw: workloads.RequestDraws(r.config.Seed, r.config.Run, r.requests).Seed()}
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// deadline is when the client gives up a request that was due then; zero = never.
func (r *run) deadline(due time.Duration) time.Time {
	if r.config.Load.Timeout == 0 {
		return time.Time{}
	}
	return r.began.Add(due + r.config.Load.Timeout.Std())
}

// expired says whether the client has given up a request that was due then.
func (r *run) expired(due, now time.Duration) bool {
	timeout := r.config.Load.Timeout.Std()
	return timeout > 0 && now >= due+timeout
}

// dialing bounds the opening of a connection for a request that was due then.
func (r *run) dialing(ctx context.Context, due time.Duration) (context.Context, context.CancelFunc) {
	if deadline := r.deadline(due); !deadline.IsZero() {
		return context.WithDeadline(ctx, deadline)
	}
	return context.WithCancel(ctx)
}

// unopened books a request for which no connection could be opened.
func (r *run) unopened(q request, now time.Duration, err error) {
	if r.expired(q.due, now) {
		r.recorder.end(q, now, fateTimedOut, nil)
	} else {
		r.recorder.end(q, now, fateConnect, err)
	}
}

// warm opens the connections that the load says it has, or one where it has no
// limit, so that a target that is not there is noticed before the load.
func (r *run) warm(ctx context.Context) ([]*slot, error) {
	n := max(1, r.config.Load.Connections)
	if !r.config.ClosedLoop && r.config.Load.Schedule == "wrk2" {
		n = len(workloads.NewConnections(r.config.Load, r.config.RPS))
	}
	slots := make([]*slot, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64) // the backlog of a listener is 128 on older kernels
	for i := range slots {
		group.Go(func() error {
			c, err := r.dialer.dial(ctx)
			if err == nil {
				slots[i] = &slot{conn: c}
			}
			return err
		})
	}
	err := group.Wait()
	for _, s := range slots {
		if err != nil && s != nil {
			s.conn.close()
		} else if s != nil {
			r.slots[s] = true
		}
	}
	return slots, err
}

// leave gives the slot to a request that leaves now.
func (r *run) leave(s *slot, q request, now time.Duration) {
	q.sent = now
	s.busy, s.request = true, q
	r.recorder.left(now)
}

// send lets the request leave that the slot was given. A connection that does
// not take it is closed, which its receiver notices.
func (r *run) send(s *slot) {
	if err := s.conn.send(s.request.draw, r.deadline(s.request.due)); err != nil {
		r.mu.Lock()
		s.sendFault = err
		r.mu.Unlock()
		s.conn.close()
	}
}

// arrived books what the connection of a slot received: the end of its
// request, if one was asked. A connection is of no more use when it failed,
// when the server closes it or when nobody had asked; its slot is forgotten.
func (r *run) arrived(s *slot, now time.Duration, a answer, err error) (asked, usable bool) {
	asked = s.busy
	if asked {
		r.ended(s, now, a, err)
	}
	usable = asked && err == nil && !a.last && s.sendFault == nil
	if !usable {
		delete(r.slots, s)
	}
	return asked, usable
}

// ended books the end of the outstanding request of a slot.
func (r *run) ended(s *slot, now time.Duration, a answer, err error) {
	s.busy = false
	r.recorder.bytes += a.bytes
	switch {
	case timedOut(err), timedOut(a.fault), timedOut(s.sendFault):
		r.recorder.end(s.request, now, fateTimedOut, nil)
	case s.sendFault != nil:
		r.recorder.end(s.request, now, fateWrite, s.sendFault)
	case err != nil:
		r.recorder.end(s.request, now, fateRead, err)
	case !a.ok:
		r.recorder.end(s.request, now, fateStatus, a.fault)
	default:
		r.recorder.end(s.request, now, fateAnswered, nil)
	}
}

// result ends the run and sums up.
func (r *run) result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	now := r.now()
	for s := range r.slots {
		switch {
		case s.busy && r.expired(s.request.due, now):
			r.recorder.end(s.request, now, fateTimedOut, nil)
		case s.busy:
			r.recorder.cutOff(s.request, now)
		}
		s.conn.close()
	}
	for q := range r.pool.waiting.all() {
		if r.expired(q.due, now) {
			r.recorder.end(q, now, fateTimedOut, nil)
		}
	}
	to := min(now, r.config.Duration)
	if !r.config.ClosedLoop {
		for _, p := range r.conns {
			c := p.(*workloads.Connection)
			r.recorder.offered += max(0, c.DueBefore(to)-c.DueBefore(r.config.Drop))
		}
	}
	return r.recorder.result(to)
}

// report calls OnProgress until ctx ends.
func (r *run) report(ctx context.Context) {
	if r.config.OnProgress == nil {
		return
	}
	every := r.config.ProgressEvery
	if every <= 0 {
		every = time.Second
	}
	r.wait.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.mu.Lock()
				p := r.recorder.progress(r.now())
				p.Waiting = int64(r.pool.waiting.len())
				r.mu.Unlock()
				r.config.OnProgress(p)
			}
		}
	})
}

// stopped notes that a schedule may be at its end.
func (r *run) stopped() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}
