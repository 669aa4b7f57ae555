package loadgen

import (
	"context"
	"errors"
	"fmt"
)

// Run offers the load and gives what was measured. It fails when the
// configuration makes no sense (ErrConfig) or the target cannot be reached at
// the start. If ctx ends, so does the run: the result then covers the time so
// far and the error is that of ctx.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	return Result{}, fmt.Errorf("load %s: %w", c.Target, errors.ErrUnsupported)
}
