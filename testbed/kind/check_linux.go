package kind

import (
	"context"
	"errors"
	"fmt"
	"os"

	"heartbed/tc"
	"heartbed/testbed/kind/image"
)

// check asks what a run needs and tries what can be tried quickly.
func check(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("delays and quotas of nodes need root: run it with sudo: %w", errors.ErrUnsupported)
	}
	if err := image.Check(ctx); err != nil {
		return err
	}
	if found, err := docker(ctx, "image", "ls", "--quiet", o.image()); err != nil {
		return err
	} else if found == "" {
		return fmt.Errorf("Docker has no image %s: make it with 'heartbed image build': %w", o.image(), errors.ErrUnsupported)
	}
	if err := tc.Probe(ctx).NFQueue; err != nil {
		return fmt.Errorf("no way to delay packets at a node: %w", err)
	}
	return nil
}
