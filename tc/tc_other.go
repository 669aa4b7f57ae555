//go:build !linux

package tc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

var errOS = fmt.Errorf("shaping needs Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

// NewShaper fails: only Linux can shape.
func NewShaper(context.Context, Options) (Shaper, error) { return nil, errOS }

// Probe says that nothing works here.
func Probe(context.Context) Probed { return Probed{errOS, errOS} }

// Clear fails: only Linux can shape.
func Clear(context.Context, string) error { return errOS }

// Group is a control group; there are none outside Linux.
type Group struct{}

// NewGroup fails: only Linux has control groups.
func NewGroup(string, CPULimit) (*Group, error) { return nil, errOS }

// OpenGroup fails: only Linux has control groups.
func OpenGroup(string) (*Group, error) { return nil, errOS }

// Add fails.
func (*Group) Add(int) error { return errOS }

// Limit fails.
func (*Group) Limit(CPULimit) error { return errOS }

// Processes fails.
func (*Group) Processes() ([]int, error) { return nil, errOS }

// Stats fails.
func (*Group) Stats() (CPUStats, error) { return CPUStats{}, errOS }

// Remove fails.
func (*Group) Remove() error { return errOS }
