package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/testbed"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/workloads/agent"
)

// check asks what a run needs. It changes nothing.
func check(ctx context.Context, o Options) error {
	t, err := o.target()
	if err != nil {
		return err
	}
	if err := t.checkName(o.Yes); err != nil {
		return err
	}
	if err := t.ask(ctx); err != nil {
		return err
	}
	if err := t.checkRights(ctx); err != nil {
		return err
	}
	pods, err := t.client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("namespace %s: %w", t.namespace, err)
	}
	if err := t.foreign(pods.Items); err != nil {
		return err
	}
	if o.Image == "" {
		return input("image", "found none, expected the name of an image of our programs that the nodes can get (see 'heartbed image programs')")
	}
	return nil
}

// session is a plan that stands in a namespace.
type session struct {
	live.Session
	stand     *stand
	ways      []way // between nodes, as measured last
	workloads kube.Workloads
	closed    bool
}

// start stands a plan up in the kept namespace, or in a new one.
func (b *Backend) start(ctx context.Context, p testbed.Plan) (testbed.Session, error) {
	began := time.Now()
	if b.kept != nil && (b.kept.key != standKey(p) || b.kept.whole(ctx) != nil) {
		if err := b.forget(); err != nil {
			return nil, err
		}
	}
	if b.kept == nil {
		if err := errors.Join(check(ctx, b.Options), CheckClean(b.Options.Journals)); err != nil {
			return nil, err
		}
		s, err := newStand(b.Options, p)
		if err != nil {
			return nil, err
		}
		if _, _, err := live.RunStages(ctx, s.stages(), b.Options.OnStage); err != nil {
			return nil, errors.Join(err, s.close())
		}
		b.kept = s
	}
	s := newSession(b.kept, p)
	if _, _, err := live.RunStages(ctx, s.stages(), b.Options.OnStage); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.note(time.Since(began))
	return s, nil
}

// forget removes the kept namespace.
func (b *Backend) forget() error {
	if b.kept == nil {
		return nil
	}
	s := b.kept
	b.kept = nil
	return s.close()
}

func newSession(st *stand, p testbed.Plan) *session {
	return &session{Session: live.Session{Layout: live.NewLayout(p), Remote: true}, stand: st}
}

func (s *session) stages() []live.Stage {
	return []live.Stage{
		{Name: "connect to the agents", Limit: time.Minute, Do: s.connect},
		{Name: "remove pods of the run before", Limit: time.Minute, Do: s.removePods},
		{Name: "measure the round-trip times", Limit: 2 * time.Minute, Do: s.measureRoundTrips},
		{Name: "create the workloads", Limit: time.Minute, Do: s.createWorkloads},
		{Name: "wait for the pods", Limit: 3 * time.Minute, Do: s.awaitPods},
		{Name: "shape the links", Limit: time.Minute, Do: s.shapeLinks},
		{Name: "measure the shaped round-trip times", Limit: 2 * time.Minute, Do: s.verifyShape},
		{Name: "serve xDS", Limit: 30 * time.Second, Do: s.serveXDS},
		{Name: "wait for the replicas", Limit: time.Minute, Do: s.AwaitReplicas},
	}
}

func (s *session) connect(ctx context.Context) error {
	if err := s.stand.connect(ctx); err != nil {
		return err
	}
	s.Offer = s.stand.load.Load
	return nil
}

// removePods removes the replicas' pods; the agents stay.
func (s *session) removePods(ctx context.Context) error {
	return kube.RemovePods(ctx, s.stand.client, s.stand.namespace, runLabel+"="+s.stand.run+","+kube.ReplicaLabel)
}

func (s *session) createWorkloads(ctx context.Context) error {
	controller, err := kube.Address(s.stand.pods[0])
	if err != nil {
		return err
	}
	s.workloads = kube.Workloads{
		Client: s.stand.client, Namespace: s.stand.namespace, Labels: s.stand.labels(), Layout: &s.Layout,
		Image: s.stand.options.Image, Pull: corev1.PullIfNotPresent, Program: program,
		XDS: netip.AddrPortFrom(controller, live.XDSPort),
	}
	for _, h := range s.stand.hosts {
		s.workloads.Hosts = append(s.workloads.Hosts, h.Host)
	}
	return s.workloads.Create(ctx)
}

func (s *session) awaitPods(ctx context.Context) error {
	if err := s.workloads.Await(ctx); err != nil {
		return err
	}
	s.Scraper = live.NewScraper(s.Layout.Replicas, s.Layout.Plan.Control, s.stand.controller.Dial)
	return nil
}

func (s *session) serveXDS(ctx context.Context) error {
	l, err := s.stand.controller.Listen(ctx, fmt.Sprintf(":%d", live.XDSPort))
	if err != nil {
		return err
	}
	s.ServeXDS(l)
	return nil
}

// Run offers the plan's load in real time. It can run once. A pod whose
// container ends meanwhile, or a lost way to the cluster, ends the run with an
// error that says so.
func (s *session) Run(ctx context.Context, step func(context.Context) error) (testbed.Measurement, error) {
	return s.Play(ctx, step, func(report func(error)) func() { return s.watch(ctx, report) })
}

func (s *session) watch(ctx context.Context, report func(error)) (unwatch func()) {
	unwatchPods := kube.Watch(ctx, s.stand.client, append(s.workloads.Pods, s.stand.pods[:firstNode]...), report)
	ended := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-s.stand.controller.Lost():
			report(errors.New("the connection to the cluster was lost: " + controllerAgent))
		case <-s.stand.load.Lost():
			report(errors.New("the connection to the cluster was lost: " + loadAgent))
		case <-ended:
		}
	}()
	return func() {
		close(ended)
		<-done
		unwatchPods()
	}
}

// note says in the result what the cluster is beside the plan.
func (s *session) note(took time.Duration) {
	var at []string
	loadNode, shared := s.stand.pods[1].Spec.NodeName, ""
	for i, h := range s.stand.hosts {
		n := s.Layout.Nodes[i]
		s.Setup = append(s.Setup, testbed.SetupCheck{What: fmt.Sprintf("cores of %s (%s)", n.Name, h.name), Unit: "cores", Spec: n.Cores, Measured: h.cores})
		at = append(at, n.Name+" is "+h.name)
		if h.name == loadNode {
			shared = ", which is also the plan's " + n.Name + ": they get in each other's way"
		}
		if h.cores < n.Cores {
			s.Notes = append(s.Notes, fmt.Sprintf("node %s has %.4g cores and its pods %.4g on %s: it never gets them; --scale divides CPU and load", n.Name, n.Cores, h.cores, h.name))
		}
	}
	s.Notes = append(s.Notes,
		fmt.Sprintf("set-up: context %s, namespace %s, stood after %.1f s; %s", s.stand.context, s.stand.namespace, took.Seconds(), strings.Join(at, ", ")),
		fmt.Sprintf("the load generator is a pod on %s%s", loadNode, shared),
		"CPU time is what the replicas' own counters say; the nodes' cores are not limited to the plan's")
	if server := s.Layout.Plan.App.Server; server.LimitCores > 0 {
		s.Notes = append(s.Notes, "quotas have the period that the cluster's kubelets give them and no burst; throttling is not observed")
	}
	if network := s.Layout.Plan.Network; !s.stand.options.Shape && (network.Sidecar > 0 || network.Jitter > 0) {
		s.Notes = append(s.Notes, "sidecar delays and jitter of the plan are not played")
	}
}

// Close removes the replicas' pods; the namespace stays. Closing again does
// nothing.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.Session.Close()
	if errors.Is(err, agent.ErrLost) {
		err = nil // the run has said so
	}
	return errors.Join(err, kube.Patiently(ctx, s.stand.ask, s.removePods))
}
