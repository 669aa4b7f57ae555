//go:build !linux

package image

import (
	"context"
	"errors"
	"syscall"
)

func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }

func lock(context.Context, string, func()) (func(), error) { return nil, errors.ErrUnsupported }

func diesWithUs() *syscall.SysProcAttr { return nil }
