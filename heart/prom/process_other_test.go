//go:build !linux

package prom

import (
	"errors"
	"fmt"
	"syscall"
)

func diesWithUs() *syscall.SysProcAttr { return nil }

func peakMemory() (int64, error) {
	return 0, fmt.Errorf("peak memory is read from /proc: %w", errors.ErrUnsupported)
}
