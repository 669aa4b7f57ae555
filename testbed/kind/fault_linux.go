package kind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"heartbed/testbed/live"
)

// Fault is what can befall a node of a plan that stands.
type Fault string

// The faults.
const (
	// Pause makes all processes of the node stand still, as on a machine that hangs.
	Pause Fault = "pause"
	// Kill ends the node at once, as a power cut does. Undone it boots again,
	// without the quota and the delays of the plan, which are part of a session.
	Kill Fault = "kill"
	// Partition drops every packet between the node and all others, pods' too.
	Partition Fault = "partition"
)

// bootLimit is how long a killed node may take until Kubernetes calls it ready.
const bootLimit = 2 * time.Minute

// Fault lets a fault befall a node of the cluster that stands, by its name in
// the plan, and gives what undoes it. Removing the cluster undoes it, too.
func (b *Backend) Fault(ctx context.Context, node string, f Fault) (undo func(context.Context) error, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		return nil, errNone
	}
	for i, n := range b.kept.plan.Nodes {
		if n.Name == node {
			return b.kept.fault(ctx, i, f)
		}
	}
	return nil, fmt.Errorf("node: found %q, expected one of the plan", node)
}

func (c *cluster) fault(ctx context.Context, node int, f Fault) (undo func(context.Context) error, err error) {
	name := c.workers[node].name
	dockers := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := docker(ctx, args...)
			return err
		}
	}
	switch f {
	case Pause:
		return dockers("unpause", name), dockers("pause", name)(ctx)
	case Kill:
		return func(ctx context.Context) error { return c.boot(ctx, node) }, dockers("kill", name)(ctx)
	case Partition:
		inNode := func(do string) func(context.Context) error {
			var rules []string
			for _, chain := range []string{"PREROUTING -i", "POSTROUTING -o"} {
				rules = append(rules, fmt.Sprintf("iptables -t mangle %s %s %s -j DROP", do, chain, uplink))
			}
			return dockers("exec", name, "sh", "-ec", strings.Join(rules, "; "))
		}
		return inNode("-D"), inNode("-I")(ctx)
	}
	return nil, fmt.Errorf("fault: found %q, expected %s, %s or %s", f, Pause, Kill, Partition)
}

// boot starts a killed node and waits until it is ready.
func (c *cluster) boot(ctx context.Context, node int) (err error) {
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	name := c.workers[node].name
	if _, err := docker(ctx, "start", name); err != nil {
		return err
	}
	if c.workers[node], err = inspect(ctx, name); err != nil {
		return err
	}
	if err := live.Pause(ctx, time.Second); err != nil { // else it is ready still
		return err
	}
	return errors.Join(c.awaitNodes(ctx), c.routeToPods(ctx))
}
