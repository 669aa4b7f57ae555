//go:build !linux

package main

import (
	"errors"
	"fmt"
	"os"
)

// peakMemory is not written for this system, where its unit differs.
func peakMemory(*os.ProcessState) (int64, error) {
	return 0, fmt.Errorf("memory of a process: %w", errors.ErrUnsupported)
}
