//go:build !unix

package main

import (
	"errors"
	"fmt"
	"time"
)

// processCPU is not written for this system.
func processCPU() (time.Duration, error) {
	return 0, fmt.Errorf("CPU time of the process: %w", errors.ErrUnsupported)
}
