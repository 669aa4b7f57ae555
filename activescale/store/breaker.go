package store

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// tripAfter failures in a row a breaker opens,
	tripAfter = 3
	// and then lets one call through in tripFor.
	tripFor = time.Second
)

// breaker spares the callers of something that fails the wait for it: with
// 1,000 HPAs asking, a Redis that hangs would otherwise hold each query for the
// whole timeout. The zero value is closed.
type breaker struct {
	mu       sync.Mutex
	failures int       // in a row
	err      error     // of the last call; nil when it went well
	since    time.Time // of the first failure in the row
	next     time.Time // while open, when the next call may pass
}

// do calls unless the breaker is open; then it gives the last error at once.
func (b *breaker) do(ctx context.Context, call func() error) error {
	if err := b.enter(); err != nil {
		return err
	}
	err := call()
	if err != nil && gaveUp(ctx) {
		return err // which says nothing of what was called
	}
	b.leave(err)
	return err
}

// gaveUp says whether the caller waits no more. A connection may notice its
// deadline before the context does.
func gaveUp(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

func (b *breaker) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.failures < tripAfter {
		return nil
	}
	if now.Before(b.next) {
		return fmt.Errorf("not asked again yet: %w", b.err)
	}
	b.next = now.Add(tripFor)
	return nil
}

func (b *breaker) leave(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	if err == nil {
		b.failures = 0
		return
	}
	now := time.Now()
	if b.failures == 0 {
		b.since = now
	}
	b.failures++
	b.next = now.Add(tripFor)
}

func (b *breaker) failing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// health is the error of the last call with how long it has been so, or nil.
func (b *breaker) health() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		return nil
	}
	return fmt.Errorf("for %v: %w", time.Since(b.since).Round(time.Second), b.err)
}
