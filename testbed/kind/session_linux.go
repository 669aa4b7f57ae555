package kind

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
)

// session is a plan that stands on a cluster.
type session struct {
	live.Session
	cluster *cluster
	image   image.Archive
	program string // its name in the image
	pids    []int  // of the replicas, on the host
	closed  bool

	workloads kube.Workloads
	loader    loader
}

// start stands a plan up on the kept cluster, or on a new one.
func (b *Backend) start(ctx context.Context, p testbed.Plan) (testbed.Session, error) {
	began := time.Now()
	slow := slowest{tell: b.Options.OnStage}
	if err := b.stand(ctx, p, &slow); err != nil {
		return nil, err
	}
	s := newSession(b.kept, p)
	s.loader.wanted = b.Options.LoadPod
	if err := slow.run(ctx, s.stages()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Notes = append(s.Notes, fmt.Sprintf("set-up: %d nodes and %d pods stood after %.1f s, of which to %s %.1f s",
		len(s.Layout.Nodes), len(s.workloads.Pods), time.Since(began).Seconds(), slow.name, slow.took.Seconds()))
	return s, nil
}

// slowest remembers the slowest of all stages.
type slowest struct {
	tell func(string, time.Duration)
	name string
	took time.Duration
}

func (s *slowest) run(ctx context.Context, stages []live.Stage) error {
	name, took, err := live.RunStages(ctx, stages, s.tell)
	if took > s.took {
		s.name, s.took = name, took
	}
	return err
}

func newSession(c *cluster, p testbed.Plan) *session {
	l := live.NewLayout(p)
	l.Client = c.control.addr
	return &session{Session: live.Session{Layout: l, Dial: live.DialIn(c.control.namespace())}, cluster: c}
}

func (s *session) stages() []live.Stage {
	return []live.Stage{
		{Name: "find or build the workload program", Limit: 10 * time.Minute, Do: s.findProgram},
		{Name: "load the program into the nodes", Limit: 2 * time.Minute, Do: s.loadProgram},
		{Name: "remove pods of the run before", Limit: time.Minute, Do: s.removePods},
		{Name: "limit the nodes' CPU", Limit: 10 * time.Second, Do: s.limitNodes},
		{Name: "create the workloads", Limit: 30 * time.Second, Do: s.createWorkloads},
		{Name: "create the load generator", Limit: 30 * time.Second, Do: s.createLoader},
		{Name: "wait for the pods", Limit: 2 * time.Minute, Do: s.awaitPods},
		{Name: "reach the load generator", Limit: time.Minute, Do: s.reachLoader},
		{Name: "find the pods' processes", Limit: 10 * time.Second, Do: s.findProcesses},
		{Name: "shape the links", Limit: 30 * time.Second, Do: s.shapeLinks},
		{Name: "measure the round-trip times", Limit: 2 * time.Minute, Do: s.verifyRoundTrips},
		{Name: "measure the CPU quotas", Limit: time.Minute, Do: s.verifyQuotas},
		{Name: "serve xDS", Limit: 10 * time.Second, Do: s.serveXDS},
		{Name: "wait for the replicas", Limit: time.Minute, Do: s.AwaitReplicas},
	}
}

// findProgram puts the program into an image. A program that had to be built
// has no name of its own.
func (s *session) findProgram(ctx context.Context) error {
	program, err := live.Workload(ctx, s.cluster.options.Workload, func() (string, error) { return s.cluster.folder, nil })
	if err != nil {
		return err
	}
	s.program = "workload"
	if filepath.Base(program) != s.program {
		// An image has its programs under the names of their files.
		link := filepath.Join(s.cluster.folder, s.program)
		if err := copyProgram(ctx, program, link); err != nil {
			return err
		}
		program = link
	}
	s.image, err = image.Programs("", program)
	return err
}

func copyProgram(ctx context.Context, from, to string) error {
	if said, err := exec.CommandContext(ctx, "cp", "--dereference", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the workload program: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

func (s *session) loadProgram(ctx context.Context) error {
	return s.cluster.load(ctx, s.image, s.loader.wanted)
}

// removePods removes all pods of ours at once and waits until they are gone.
func (s *session) removePods(ctx context.Context) error {
	return kube.RemovePods(ctx, s.cluster.client, Namespace, "")
}

func (s *session) createWorkloads(ctx context.Context) error {
	if _, err := s.cluster.client.CoreV1().Namespaces().Apply(ctx, apply.Namespace(Namespace), kube.Applied); err != nil {
		return err
	}
	s.workloads = kube.Workloads{
		Client: s.cluster.client, Namespace: Namespace, Layout: &s.Layout,
		Image: s.image.Name, Pull: corev1.PullNever, Program: "/" + s.program,
		XDS: netip.AddrPortFrom(s.cluster.beside.addr, live.XDSPort),
	}
	for _, n := range s.Layout.Nodes {
		s.workloads.Hosts = append(s.workloads.Hosts, kube.Host{Label: NodeLabel, Value: n.Name, CPUs: runtime.NumCPU(), Requests: n.Cores})
	}
	return s.workloads.Create(ctx)
}

// awaitPods waits until all pods are ready.
func (s *session) awaitPods(ctx context.Context) error {
	if err := s.workloads.Await(ctx); err != nil {
		return err
	}
	s.Scraper = live.NewScraper(s.Layout.Replicas, s.Layout.Plan.Control, live.DialIn(s.cluster.beside.namespace()))
	return nil
}

// uplink is the interface by which a node reaches the others.
const uplink = "eth0"

// shapeLinks delays what arrives at the pods, where their node forwards it, and
// at the load generator.
func (s *session) shapeLinks(ctx context.Context) error {
	shape := func(o tc.Options, links map[netip.Addr]tc.Link) error {
		if len(links) == 0 {
			return nil
		}
		o.Seed = s.Layout.Plan.Seed + uint64(len(s.Shapers))
		shaper, err := tc.NewShaper(ctx, o)
		if err != nil {
			return err
		}
		s.Shapers = append(s.Shapers, shaper)
		return shaper.Apply(ctx, links)
	}
	for i, n := range s.Layout.Nodes {
		if err := shape(tc.Options{NS: s.cluster.workers[i].namespace(), Uplink: uplink}, s.Layout.LinksOf(i)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	// By NFQueue, too: the kernel's own would see the address of a Service.
	client := tc.Options{NS: s.cluster.control.namespace(), Method: tc.NFQueue}
	if s.loader.wanted {
		client.Uplink = uplink
	}
	if err := shape(client, s.Layout.ClientLinks()); err != nil {
		return fmt.Errorf("load generator: %w", err)
	}
	return nil
}

// verifyRoundTrips measures from the first pod of each node to the first of
// each other and to a second of its own, and from the load generator to all.
func (s *session) verifyRoundTrips(ctx context.Context) error {
	onNode := make([][]int, len(s.Layout.Nodes))
	for k, r := range s.Layout.Replicas {
		onNode[r.On] = append(onNode[r.On], k)
	}
	at := func(k int) string {
		return netip.AddrPortFrom(s.Layout.Replicas[k].Addr, live.MetricsPort).String()
	}
	var pairs []live.Pair
	for i, from := range onNode {
		if len(from) == 0 {
			continue
		}
		dial := live.DialIn(fmt.Sprintf("/proc/%d/ns/net", s.pids[from[0]]))
		for j := i; j < len(onNode); j++ {
			to := onNode[j]
			if i == j {
				to = to[1:] // to itself a pod is at no distance
			}
			if len(to) > 0 {
				pairs = append(pairs, live.Pair{
					From: s.Layout.Nodes[i].Name, To: s.Layout.Nodes[j].Name, Dial: dial, At: at(to[0]),
					Spec: s.Layout.RoundTrip(i, j), Jitter: s.Layout.Plan.Network.Jitter.Std(),
				})
			}
		}
		pairs = append(pairs, live.Pair{From: "load generator", To: s.Layout.Nodes[i].Name, Dial: s.Dial, At: at(from[0]), Spec: s.Layout.ClientRoundTrip(i)})
	}
	return s.VerifyRoundTrips(ctx, pairs)
}

func (s *session) serveXDS(context.Context) error {
	listener, err := live.ListenIn(s.cluster.beside.namespace(), netip.AddrPortFrom(s.cluster.beside.addr, live.XDSPort))
	if err != nil {
		return err
	}
	s.ServeXDS(listener)
	return nil
}

// Run offers the plan's load in real time. It can run once. A pod whose
// container ends meanwhile ends the run with an error that says how.
func (s *session) Run(ctx context.Context, step func(context.Context) error) (testbed.Measurement, error) {
	return s.Play(ctx, step, func(report func(error)) func() { return s.watch(ctx, report) })
}

// Close removes the pods and stops what shapes; the cluster stays. Closing
// again does nothing.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(s.Session.Close(), s.loader.close(), kube.Patiently(ctx, s.cluster.answers, s.removePods))
}
