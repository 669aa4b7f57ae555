package netns

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// priority of this program's threads (nice). The load generator and the delay
// of packets stand for other machines: they must not wait for the replicas.
// Replicas inherit it, but compete by the weights of their CPU groups.
const priority = -10

// prioritise raises the priority of all threads of this program; threads to
// come inherit it.
func prioritise() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, priority); err != nil && err != unix.ESRCH {
			return fmt.Errorf("priority %d of thread %d: %w", priority, id, err)
		}
	}
	return nil
}
