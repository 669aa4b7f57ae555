//go:build !linux

package netns

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"heartbed/testbed"
	"heartbed/testbed/live"
)

var errNoLinux = fmt.Errorf("network namespaces need Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

func check(context.Context, Options) error { return errNoLinux }

func start(context.Context, Options, live.Layout) (testbed.Session, error) { return nil, errNoLinux }

func facts(context.Context) []live.Fact { return nil }

func remove(context.Context, live.Entry) error { return errNoLinux }
