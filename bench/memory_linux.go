package main

import (
	"fmt"
	"os"
	"syscall"
)

// peakMemory is the largest resident set of a process that has ended, in KiB.
func peakMemory(state *os.ProcessState) (int64, error) {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, fmt.Errorf("resource usage: found %T", state.SysUsage())
	}
	return int64(usage.Maxrss), nil
}
