package loadgen

import (
	"context"
	"time"

	"heartbed/workloads"
)

// pacer says when a connection with one request outstanding sends the next:
// workloads.Connection for wrk2, asap for a closed loop.
type pacer interface {
	// Due is when the next request is due, since the start.
	Due() time.Duration
	// SendAt is when it leaves if the connection is free at now.
	SendAt(now time.Duration) time.Duration
	Done()
}

// asap sends when the connection is free; that is when the request is due.
type asap struct{ free time.Duration }

func (p *asap) Due() time.Duration { return p.free }
func (p *asap) Done()              {}
func (p *asap) SendAt(now time.Duration) time.Duration {
	p.free = now
	return now
}

// retryPause keeps a connection that cannot be opened from trying without rest.
const retryPause = 10 * time.Millisecond

// paced runs every connection at its own pace until the end of the schedule,
// which waits for no answer.
func (r *run) paced(ctx context.Context, first []*slot) {
	if r.config.ClosedLoop {
		for range first {
			r.conns = append(r.conns, &asap{})
		}
	} else {
		for _, c := range workloads.NewConnections(r.config.Load, r.config.RPS) {
			r.conns = append(r.conns, c)
		}
	}
	r.recorder.opened = len(first)
	ctx, cancel := context.WithDeadline(ctx, r.began.Add(r.config.Duration))
	defer cancel()
	for i, p := range r.conns {
		p := &pacedConn{run: r, pacer: p, slot: first[i]}
		r.wait.Go(func() { p.loop(ctx) })
	}
	<-ctx.Done()
}

// pacedConn is a connection that keeps its own pace. Its goroutine always
// reads, so that it notices when the server closes the idle connection; the
// timer's sends. run.mu guards it.
type pacedConn struct {
	run   *run
	pacer pacer
	slot  *slot         // nil = to be opened for the next request
	at    time.Duration // when that leaves
	timer *time.Timer
}

// loop goes on until the run is over.
func (p *pacedConn) loop(ctx context.Context) {
	p.run.mu.Lock()
	p.timer = time.AfterFunc(time.Hour, p.fire)
	defer p.timer.Stop()
	p.at = p.pacer.SendAt(p.run.now())
	send := p.arm()
	p.run.mu.Unlock()
	for more := true; more; {
		if send {
			p.run.send(p.slot)
		}
		if p.slot == nil {
			send, more = p.reopen(ctx)
			continue
		}
		a, err := p.slot.conn.receive()
		send, more = p.received(a, err)
	}
}

// arm sets the timer for the next request, or gives it to the connection if
// it leaves now: the caller sends it.
func (p *pacedConn) arm() (send bool) {
	now := p.run.now()
	for p.at <= now {
		if p.depart(now) {
			return true
		}
		p.at = p.pacer.SendAt(now)
	}
	p.timer.Reset(p.at - now)
	return false
}

// fire sends the next request when its time has come.
func (p *pacedConn) fire() {
	r := p.run
	r.mu.Lock()
	now := r.now()
	if r.over || p.slot == nil || p.slot.busy || now < p.at { // closed meanwhile
		r.mu.Unlock()
		return
	}
	r.recorder.late(p.pacer.Due(), now-p.at)
	s, send := p.slot, p.depart(now)
	if !send {
		p.at = p.pacer.SendAt(now)
		send = p.arm()
	}
	r.mu.Unlock()
	if send {
		r.send(s)
	}
}

// depart gives the connection its next request; false if the client has
// already given that up.
func (p *pacedConn) depart(now time.Duration) bool {
	r := p.run
	q := r.newRequest(p.pacer.Due())
	if r.expired(q.due, now) {
		r.recorder.end(q, now, fateTimedOut, nil)
		p.pacer.Done()
		return false
	}
	if r.config.ClosedLoop {
		r.recorder.offer(q.due)
	}
	r.leave(p.slot, q, now)
	return true
}

// received books what the connection received; more is false when the run is over.
func (p *pacedConn) received(a answer, err error) (send, more bool) {
	r, s := p.run, p.slot
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false, false
	}
	asked, usable := r.arrived(s, now, a, err)
	if asked {
		p.pacer.Done()
		p.at = p.pacer.SendAt(now)
	}
	if !usable {
		p.timer.Stop()
		s.conn.close()
		p.slot = nil
		return false, true
	}
	return p.arm(), true
}

// reopen dials when the next request is to leave, which fails with the
// dialling; more is false when the run is over.
func (p *pacedConn) reopen(ctx context.Context) (send, more bool) {
	r := p.run
	if !r.sleep(ctx, p.at-r.now()) {
		return false, false
	}
	due := p.pacer.Due()
	dialing, cancel := r.dialing(ctx, due)
	c, err := r.dialer.dial(dialing)
	cancel()
	if err != nil && ctx.Err() == nil && !r.expired(due, r.now()) && !r.sleep(ctx, retryPause) {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	switch {
	case r.over || ctx.Err() != nil:
		if err == nil {
			c.close()
		}
		return false, false
	case err == nil:
		p.slot = &slot{conn: c}
		r.slots[p.slot] = true
		return p.arm(), true
	case r.config.ClosedLoop:
		r.recorder.offer(due)
	}
	r.unopened(r.newRequest(due), now, err)
	p.pacer.Done()
	p.at = p.pacer.SendAt(now)
	return false, true
}

// sleep waits; false when the run is over.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
