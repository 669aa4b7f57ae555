package kind

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"heartbed/testbed"
	"heartbed/testbed/kind/image"
)

// Up makes the cluster of a plan, unless it stands, without the plan's
// replicas. It gives a kubeconfig file that is there as long as the cluster.
func (b *Backend) Up(ctx context.Context, p testbed.Plan) (kubeconfig string, err error) {
	if err := checkPlan(p); err != nil {
		return "", fmt.Errorf("cluster on kind: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.stand(ctx, p, &slowest{tell: b.Options.OnStage}); err != nil {
		return "", err
	}
	return b.kept.kubeconfig(), nil
}

// Load gives the nodes of the cluster that stands an image, that of the control
// plane too if everywhere.
func (b *Backend) Load(ctx context.Context, a image.Archive, everywhere bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		return errNone
	}
	return b.kept.loadInto(ctx, a.File, func(node string) bool { return everywhere || isWorker(node) })
}

var errNone = errors.New("no cluster stands")

func isWorker(node string) bool { return !strings.HasSuffix(node, "-control-plane") }

// stand makes the cluster of a plan unless it is kept.
func (b *Backend) stand(ctx context.Context, p testbed.Plan, slow *slowest) error {
	if b.kept != nil && b.kept.key != clusterKey(p, b.Options.image()) {
		if err := b.forget(); err != nil {
			return err
		}
	}
	if b.kept != nil {
		return nil
	}
	if err := errors.Join(check(ctx, b.Options), CheckClean(b.Options.Journals), checkRoom(ctx, len(p.Nodes)+1)); err != nil {
		return err
	}
	c, err := newCluster(b.Options, p)
	if err != nil {
		return err
	}
	if err := slow.run(ctx, c.stages()); err != nil {
		return errors.Join(err, c.close())
	}
	b.kept = c
	return nil
}

// forget removes the kept cluster.
func (b *Backend) forget() error {
	if b.kept == nil {
		return nil
	}
	c := b.kept
	b.kept = nil
	return c.close()
}
