//go:build !linux

package netns

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"heartbed/testbed"
)

var errNoLinux = fmt.Errorf("network namespaces need Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

func check(context.Context, Options) error { return errNoLinux }

func start(context.Context, Options, layout) (testbed.Session, error) { return nil, errNoLinux }

func facts(context.Context) []Fact { return nil }

func alive(int, uint64) bool { return false }

func remove(context.Context, entry) error { return errNoLinux }
