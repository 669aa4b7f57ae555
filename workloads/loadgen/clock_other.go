//go:build !linux

package loadgen

import (
	"context"
	"runtime"
	"time"
)

// clock wakes its goroutine at exact times, as exactly as the timers of the
// Go runtime are here.
type clock struct {
	timer *time.Timer
	spin  time.Duration
	ctx   context.Context
}

// newClock makes a clock that stops with ctx.
func newClock(ctx context.Context, spin time.Duration) (*clock, error) {
	return &clock{timer: time.NewTimer(0), spin: orDefault(spin), ctx: ctx}, nil
}

// until returns at t; earlier with an error when the context ends.
func (c *clock) until(t time.Time) error {
	if wait := time.Until(t) - max(c.spin, 0); wait > 0 {
		c.timer.Reset(wait)
		select {
		case <-c.timer.C:
		case <-c.ctx.Done():
		}
	}
	for time.Until(t) > 0 && c.ctx.Err() == nil {
		runtime.Gosched()
	}
	return c.ctx.Err()
}

func (c *clock) close() { c.timer.Stop() }
