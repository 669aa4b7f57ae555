//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"heartbed/testbed/kind/image"
)

func programs(context.Context, string) (image.Archive, error) {
	return image.Archive{}, fmt.Errorf("the programs of the image are for Linux, this is %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
