// Package netns is the testbed of processes in network namespaces: every node
// of a plan is a namespace and a CPU group of this machine, every replica a
// process in it. Programs, TCP, routing and CPU quotas are real; distances are
// delays of packets. It needs Linux and root.
//
// The namespaces of a run hang on a bridge in a namespace of its own, and what
// talks to them (controller, load generator) opens its sockets inside. So
// nothing appears in the host's own network, addresses need not be unique on
// the machine, and removing the namespaces removes all links with them.
package netns

import (
	"context"
	"fmt"
	"time"

	"heartbed/testbed"
	"heartbed/testbed/live"
)

// Options of the backend; the zero value is what the command line starts with.
type Options struct {
	// Workload is the path of the workload program; empty = the environment
	// variable HEARTBED_WORKLOAD, the folder of this program, or built from the
	// source tree, whichever comes first.
	Workload string
	// Journals is the folder of the journals; empty = DefaultJournals().
	Journals string
	// OnStage is told of each stage of setting up that has ended; nil = nobody.
	OnStage func(name string, took time.Duration)
}

// Backend stands plans up in network namespaces.
type Backend struct{ Options Options }

// Check says whether this machine can run the backend. It leaves nothing
// behind.
func (b Backend) Check(ctx context.Context) error { return check(ctx, b.Options) }

// Facts lists what the backend finds on this machine. Elsewhere than on Linux
// there is nothing to list.
func Facts(ctx context.Context) []live.Fact { return facts(ctx) }

// Start makes namespaces, CPU groups and processes, shapes the links and
// measures that they are what the plan says. What an earlier run left behind
// is an error that names it; Down removes it.
func (b Backend) Start(ctx context.Context, p testbed.Plan) (testbed.Session, error) {
	l, err := newLayout(p)
	if err != nil {
		return nil, fmt.Errorf("start on namespaces: %w", err)
	}
	return start(ctx, b.Options, l)
}
