package prom

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// diesWithUs ends a program whose test was killed.
func diesWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// peakMemory is the largest resident set that this process has had, in bytes.
// (What the kernel tells of a child that has ended includes its parent's.)
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, text, found := strings.Cut(string(status), "VmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscan(text, &kilobytes); !found || err != nil {
		return 0, fmt.Errorf("VmHWM in /proc/self/status: found %v, %w", found, err)
	}
	return kilobytes << 10, nil
}
