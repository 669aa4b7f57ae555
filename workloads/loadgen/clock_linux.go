package loadgen

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// clock wakes its goroutine at exact times. The timers of the Go runtime are
// rounded up to a millisecond (epoll_wait), so it sleeps on a kernel timer's
// file, which wakes the poller at the exact time and occupies no thread.
type clock struct {
	timer *os.File
	fd    int
	spin  time.Duration
	ctx   context.Context
	stop  func() bool
}

// newClock makes a clock that stops with ctx.
func newClock(ctx context.Context, spin time.Duration) (*clock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", os.NewSyscallError("timerfd_create", err))
	}
	c := &clock{timer: os.NewFile(uintptr(fd), "timerfd"), fd: fd, spin: orDefault(spin), ctx: ctx}
	c.stop = context.AfterFunc(ctx, func() { c.timer.SetReadDeadline(time.Unix(1, 0)) })
	return c, nil
}

// until returns at t; earlier with an error when the context ends.
func (c *clock) until(t time.Time) error {
	if wait := time.Until(t) - max(c.spin, 0); wait > 0 {
		if err := c.sleep(wait); err != nil {
			return err
		}
	}
	for time.Until(t) > 0 {
		runtime.Gosched()
	}
	return c.ctx.Err()
}

func (c *clock) sleep(d time.Duration) error {
	value := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	if err := unix.TimerfdSettime(c.fd, 0, &value, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err := c.timer.Read(expirations[:])
	return err
}

func (c *clock) close() {
	c.stop()
	c.timer.Close()
}
