// Package cluster is the testbed of a Kubernetes cluster that exists: the plan
// stands in one namespace of it. Nodes, network, kube-proxy and CPU are what
// the cluster has: round trips are measured and told to the policies, and what
// differs from the plan is in the result. Only Options.Shape changes the way.
//
// Nothing of ours runs outside the namespace, and this program needs no more
// than the API server: agents in pods (workloads/agent) take the callers' xDS
// connections, reach the exporters, measure round trips and offer the load.
//
// The namespace and the agents are made for the first plan and kept for those
// with the same nodes until Close.
package cluster

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
	"heartbed/testbed/live"
)

// Options of the backend.
type Options struct {
	Kubeconfig string // file; empty = as kubectl finds it
	Context    string // of the kubeconfig; empty = its current one
	Namespace  string // empty = DefaultNamespace
	// Image of our programs, by a name under which the nodes can get it.
	Image string
	// Shape delays packets at the plan's nodes, so that round trips are the
	// plan's: by pods in the nodes' network, which a namespace that enforces a
	// Pod Security Standard below privileged refuses.
	Shape bool
	// Yes means that a name like that of a production cluster is no mistake.
	Yes bool
	// Journals is the folder of the journals; empty = DefaultJournals().
	Journals string
	// OnStage is told of each stage of setting up that has ended; nil = nobody.
	OnStage func(name string, took time.Duration)
}

// DefaultNamespace is where a plan stands unless told otherwise.
const DefaultNamespace = "heartbed"

// ErrInput marks options that make no sense for the cluster they name.
var ErrInput = errors.New("bad input")

// Backend stands plans up in a namespace, one after the other.
type Backend struct {
	Options Options

	mu   sync.Mutex
	kept *stand // nil = none yet
}

// Check says whether the cluster answers and lets us do what a run needs. It
// changes nothing.
func (b *Backend) Check(ctx context.Context) error { return check(ctx, b.Options) }

// Fits says whether the plan can be played there: by this backend, and by the
// cluster's nodes. It changes nothing.
func (b *Backend) Fits(ctx context.Context, p testbed.Plan) error {
	if err := checkPlan(p); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	return fits(ctx, b.Options, p)
}

// Facts says what killed runs left in clusters.
func Facts() []live.Fact {
	f := live.Fact{Name: "own clusters", State: "ok", Note: "no run left anything in a cluster of yours"}
	if err := CheckClean(""); err != nil {
		f.State, f.Note = "info", err.Error()
	}
	return []live.Fact{f}
}

// Start stands the plan up and measures how far the cluster is from it. What
// an earlier run left behind is an error that names it; Down removes it.
func (b *Backend) Start(ctx context.Context, p testbed.Plan) (testbed.Session, error) {
	if err := checkPlan(p); err != nil {
		return nil, fmt.Errorf("start on cluster: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.start(ctx, p)
}

// Close removes all that is ours from the cluster. Closing again does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.forget()
}

// checkPlan names what of the plan the backend cannot play, joined.
func checkPlan(p testbed.Plan) error {
	faults := []error{p.Validate(), p.App.Validate(), p.Load.Validate()}
	for i, a := range p.Antagonists {
		if a.StealCores > 0 {
			faults = append(faults, fmt.Errorf("antagonist %d: found stealCores; this backend has no hand on the CPU of a cluster's nodes, expected inflate", i+1))
		}
	}
	return errors.Join(faults...)
}

func (o Options) namespace() string { return cmp.Or(o.Namespace, DefaultNamespace) }

func (o Options) journals() string { return cmp.Or(o.Journals, DefaultJournals()) }

// DefaultJournals is where journals are kept: what is in a cluster outlives a
// boot of this machine.
func DefaultJournals() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "heartbed", "cluster")
}

// CheckClean fails if there is something of a run that ended without undoing
// it. dir is the folder of the journals, empty = DefaultJournals().
func CheckClean(dir string) error { return live.CheckClean(Options{Journals: dir}.journals()) }

// Down removes what runs that ended without doing so left in clusters. It can
// be repeated. dir is the folder of the journals, empty = DefaultJournals().
func Down(ctx context.Context, dir string) ([]live.Removed, error) {
	return live.Down(ctx, Options{Journals: dir}.journals(), remove)
}

// limited bounds a question to the API server.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 15*time.Second)
}
