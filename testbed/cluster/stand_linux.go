package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"heartbed/testbed"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/workloads/agent"
)

// program is the path of our program in the image.
const program = "/workload"

// stand is our namespace with its agents.
type stand struct {
	options Options
	target
	plan    testbed.Plan // its nodes are those of the agents
	key     string       // of the plans that it serves
	run     string
	journal *live.Journal
	hosts   []host

	pods       []corev1.Pod    // of the agents, in the order of names
	clients    []*agent.Client // to them
	controller *agent.Client   // takes the callers' xDS, reaches the exporters
	load       *agent.Client   // offers the load
}

// Names of the agents' pods, in this order.
const (
	controllerAgent = "heartbed-controller"
	loadAgent       = "heartbed-load"
	nodeAgent       = "heartbed-node-"  // and the number of the plan's node
	shapeAgent      = "heartbed-shape-" // likewise; in the node's network
	firstNode       = 2
)

func (s *stand) names() []string {
	names := []string{controllerAgent, loadAgent}
	for i := range s.hosts {
		names = append(names, fmt.Sprint(nodeAgent, i+1))
	}
	for i := range s.hosts {
		if s.options.Shape {
			names = append(names, fmt.Sprint(shapeAgent, i+1))
		}
	}
	return names
}

func (s *stand) nodePod(i int) corev1.Pod     { return s.pods[firstNode+i] }
func (s *stand) shaperOf(i int) *agent.Client { return s.clients[firstNode+len(s.hosts)+i] }

// standKey tells apart plans that need different agents.
func standKey(p testbed.Plan) string {
	var key strings.Builder
	for _, n := range p.Nodes {
		fmt.Fprintf(&key, "%s=%g ", n.Name, n.Cores)
	}
	return key.String()
}

// newStand opens the journal.
func newStand(o Options, p testbed.Plan) (*stand, error) {
	t, err := o.target()
	if err != nil {
		return nil, err
	}
	j, run, err := live.NewRun(o.journals())
	if err != nil {
		return nil, err
	}
	return &stand{options: o, target: t, plan: p, key: standKey(p), run: run, journal: j}, nil
}

func (s *stand) stages() []live.Stage {
	return []live.Stage{
		{Name: "choose the nodes", Limit: 30 * time.Second, Do: s.choose},
		{Name: "claim the namespace", Limit: time.Minute, Do: s.claimNamespace},
		{Name: "create the agents", Limit: 30 * time.Second, Do: s.createAgents},
		{Name: "wait for the agents", Limit: 3 * time.Minute, Do: s.awaitAgents},
	}
}

func (s *stand) choose(ctx context.Context) (err error) {
	s.hosts, err = s.hostsOf(ctx, s.plan)
	return err
}

func (t target) hostsOf(ctx context.Context, p testbed.Plan) ([]host, error) {
	nodes, err := t.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return mapNodes(p.Nodes, nodes.Items)
}

// fits says whether the cluster has nodes for a plan.
func fits(ctx context.Context, o Options, p testbed.Plan) error {
	t, err := o.target()
	if err != nil {
		return err
	}
	ctx, cancel := limited(ctx)
	defer cancel()
	_, err = t.hostsOf(ctx, p)
	return err
}

// enforceLabel of a namespace is the Pod Security Standard that it enforces.
const enforceLabel = "pod-security.kubernetes.io/enforce"

func (s *stand) claimNamespace(ctx context.Context) error {
	labels := map[string]string{}
	if s.options.Shape {
		labels[enforceLabel] = "privileged"
	}
	return s.claim(ctx, s.journal, s.run, labels)
}

func (s *stand) labels() map[string]string { return map[string]string{runLabel: s.run} }

// createAgents makes one for each node, and two that stand beside the plan's
// nodes where the cluster has others.
func (s *stand) createAgents(ctx context.Context) error {
	for i, name := range s.names() {
		a := kube.Agent{
			Name: name, Namespace: s.namespace, Labels: s.labels(), Image: s.options.Image, Program: program,
			Pull: corev1.PullIfNotPresent, Requests: agentRequests,
		}
		if a.Affinity = s.beside(); i >= firstNode {
			a.Affinity = s.hosts[(i-firstNode)%len(s.hosts)].Affinity()
			a.OfNode = i >= firstNode+len(s.hosts)
		}
		if name == loadAgent {
			a.Requests = loadRequests
		}
		if err := a.Apply(ctx, s.client); err != nil {
			return err
		}
	}
	return nil
}

// What agents request, in cores: most of them idle while a load is offered.
const (
	agentRequests = 0.01
	loadRequests  = 0.25
)

// beside prefers nodes that are not the plan's.
func (s *stand) beside() *apply.AffinityApplyConfiguration {
	var names []string
	for _, h := range s.hosts {
		names = append(names, h.Value)
	}
	other := apply.NodeSelectorRequirement().WithKey(corev1.LabelHostname).WithOperator(corev1.NodeSelectorOpNotIn).WithValues(names...)
	return apply.Affinity().WithNodeAffinity(apply.NodeAffinity().WithPreferredDuringSchedulingIgnoredDuringExecution(
		apply.PreferredSchedulingTerm().WithWeight(100).WithPreference(apply.NodeSelectorTerm().WithMatchExpressions(other))))
}

func (s *stand) awaitAgents(ctx context.Context) (err error) {
	s.pods, err = kube.AwaitPods(ctx, s.client, s.namespace, s.names())
	if err != nil {
		return err
	}
	s.clients = make([]*agent.Client, len(s.pods))
	for i, h := range s.hosts {
		if s.options.Shape && s.pods[1].Spec.NodeName == h.name {
			return input("nodes", "found the load generator on %s, which is the plan's %s; with --shape it needs one beside them that takes pods", h.name, s.plan.Nodes[i].Name)
		}
	}
	return nil
}

// whole fails if an agent is not the one that was ready.
func (s *stand) whole(ctx context.Context) error {
	now, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return kube.Ended(s.pods, now.Items)
}

// connect reaches the agents that it has not reached yet, or lost.
func (s *stand) connect(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(8)
	for i, pod := range s.pods {
		if c := s.clients[i]; c != nil {
			select {
			case <-c.Lost():
			default:
				continue
			}
		}
		all.Go(func() (err error) {
			s.clients[i], err = kube.ConnectAgent(ctx, s.config, pod)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	s.controller, s.load = s.clients[0], s.clients[1]
	return nil
}

// removeLimit is how long a cluster may take to remove what is ours.
const removeLimit = 2 * time.Minute

// close removes all that the journal names.
func (s *stand) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	var errs []error
	for _, c := range s.clients {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(append(errs, s.journal.Close(ctx, remove))...)
}
