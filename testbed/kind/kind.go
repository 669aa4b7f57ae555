// Package kind is the testbed of a Kubernetes cluster in Docker containers,
// made by kind: a control plane and one worker for each node of the plan.
// Kubernetes, kube-proxy, containers, TCP and CPU quotas are real; distances
// are delays of packets at the nodes. It needs Docker, Linux and root.
//
// The cluster is made for the first plan and kept for those with the same
// nodes until Close. Everything has a name with the run's number in it: the
// cluster, its Docker network and a container beside it, in whose network the
// controller stands. The load generator stands in that of the control plane.
package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"heartbed/testbed"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/live"
)

// Options of the backend; the zero value is what the command line starts with.
type Options struct {
	// Image is the node image in Docker; empty = the one that image.Build makes.
	Image string
	// Workload is the path of the workload program, as in package netns.
	Workload string
	// Kubeconfig is a file that gives kubectl access to the cluster while it
	// stands; empty = none. A user's own kubeconfig is never touched.
	Kubeconfig string
	// LoadPod offers the load from a pod instead of from this process.
	LoadPod bool
	// Journals is the folder of the journals; empty = DefaultJournals().
	Journals string
	// OnStage is told of each stage of setting up that has ended; nil = nobody.
	OnStage func(name string, took time.Duration)
}

// Backend stands plans up in a cluster, one after the other.
type Backend struct {
	Options Options

	mu   sync.Mutex
	kept *cluster // nil = none yet
}

// Check says whether this machine can run the backend. It leaves nothing
// behind.
func (b *Backend) Check(ctx context.Context) error { return check(ctx, b.Options) }

// Facts lists what the backend finds on this machine beside what Check says.
func Facts() []live.Fact { return facts() }

// Start stands the plan up and measures that it is what the plan says. What an
// earlier run left behind is an error that names it; Down removes it.
func (b *Backend) Start(ctx context.Context, p testbed.Plan) (testbed.Session, error) {
	if err := checkPlan(p); err != nil {
		return nil, fmt.Errorf("start on kind: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.start(ctx, p)
}

// Close removes the cluster. Closing again does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.forget()
}

// checkPlan names what of the plan the backend cannot play, joined.
func checkPlan(p testbed.Plan) error {
	faults := []error{p.Validate(), p.App.Validate(), p.Load.Validate()}
	if len(p.Nodes) > maxNodes {
		faults = append(faults, fmt.Errorf("nodes: found %d, expected at most %d", len(p.Nodes), maxNodes))
	}
	for i, a := range p.Antagonists {
		if a.StealCores > 0 && p.App.Server.LimitCores > 0 {
			faults = append(faults, fmt.Errorf("antagonist %d: found stealCores with limitCores; a kubelet's quotas cannot be lifted meanwhile, expected one of them", i+1))
		}
	}
	return errors.Join(faults...)
}

const maxNodes = 20

func (o Options) image() string { return cmp.Or(o.Image, image.Name()) }

func (o Options) journals() string { return cmp.Or(o.Journals, DefaultJournals()) }

// DefaultJournals is where journals are kept: unlike namespaces, containers
// outlive a boot.
func DefaultJournals() string {
	if os.Geteuid() == 0 {
		return "/var/lib/heartbed/kind"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "heartbed", "kind")
}

// CheckClean fails if there is something of a run that ended without undoing
// it. dir is the folder of the journals, empty = DefaultJournals().
func CheckClean(dir string) error { return live.CheckClean(Options{Journals: dir}.journals()) }

// Down removes the clusters of runs that ended without doing so. It can be
// repeated. dir is the folder of the journals, empty = DefaultJournals().
func Down(ctx context.Context, dir string) ([]live.Removed, error) {
	return live.Down(ctx, Options{Journals: dir}.journals(), remove)
}
