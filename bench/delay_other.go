//go:build !linux

package main

import (
	"context"
	"fmt"
	"io"

	"heartbed/tc"
)

func runDelay(ctx context.Context, out io.Writer, _ options) error {
	_, err := fmt.Fprintf(out, "left out: %v\n", tc.Probe(ctx).NFQueue)
	return err
}
