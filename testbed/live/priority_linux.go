package live

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// RealTime puts all threads of this program before the replicas, and the
// threads to come with them, until restore is called. The load generator
// stands for another machine: it must not wait for the CPU that replicas use.
// No process may be started meanwhile, it would inherit the priority.
func RealTime() (restore func() error, err error) {
	normal := func() error { return schedule(unix.SchedAttr{Policy: unix.SCHED_NORMAL}) }
	if err := schedule(unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}); err != nil {
		return nil, errors.Join(err, normal())
	}
	return normal, nil
}

// schedule sets the scheduling of all threads. Threads can start meanwhile as
// children of those not yet reached, hence the second pass.
func schedule(attr unix.SchedAttr) error {
	attr.Size = unix.SizeofSchedAttr
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list own threads: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetAttr(id, &attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("schedule thread %d: %w", id, err)
			}
		}
	}
	return nil
}
