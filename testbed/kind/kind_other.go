//go:build !linux

package kind

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"heartbed/testbed"
	"heartbed/testbed/live"
)

var errNoLinux = fmt.Errorf("delays and quotas of nodes need Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

type cluster struct{}

func facts() []live.Fact { return nil }

func check(context.Context, Options) error { return errNoLinux }

func (b *Backend) start(context.Context, testbed.Plan) (testbed.Session, error) {
	return nil, errNoLinux
}

func (b *Backend) forget() error { return nil }

func remove(context.Context, live.Entry) error { return errNoLinux }
