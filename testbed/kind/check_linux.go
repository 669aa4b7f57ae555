package kind

import (
	"context"
	"errors"
	"fmt"
	"os"

	"heartbed/tc"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/live"
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
		return fmt.Errorf("no image %s in Docker: make it with 'heartbed image build': %w", o.image(), errors.ErrUnsupported)
	}
	if err := tc.Probe(ctx).NFQueue; err != nil {
		return fmt.Errorf("no way to delay packets at a node: %w", err)
	}
	return nil
}

// facts says how privileged a node's container can be, and what killed runs left.
func facts() []live.Fact {
	privileges := live.Fact{Name: "CAP_SYS_RESOURCE", State: "ok", Note: "kind can start privileged containers"}
	if lacks, err := lacksResource(); err != nil {
		privileges.State, privileges.Note = "unknown", err.Error()
	} else if lacks {
		privileges.State, privileges.Note = "info", "root lacks it here, so docker run --privileged fails: kind is given a docker that asks for the rest"
	}
	remains := live.Fact{Name: "clusters", State: "ok", Note: "no run left a cluster behind"}
	if err := CheckClean(""); err != nil {
		remains.State, remains.Note = "info", err.Error()
	}
	return []live.Fact{privileges, remains}
}
