//go:build !linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"heartbed/testbed"
)

var errNoLinux = fmt.Errorf("runs on real processes are measured on Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

type stand struct{}

func check(context.Context, Options) error { return errNoLinux }

func fits(context.Context, Options, testbed.Plan) error { return errNoLinux }

func (b *Backend) start(context.Context, testbed.Plan) (testbed.Session, error) {
	return nil, errNoLinux
}

func (b *Backend) forget() error { return nil }
