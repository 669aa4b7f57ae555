package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"heartbed/heart"
)

// clusterConfig finds the cluster: by the file, else as a pod in it, else as
// the user's kubectl would.
func clusterConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		if config, err := rest.InClusterConfig(); !errors.Is(err, rest.ErrNotInCluster) {
			return config, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return config, nil
}

// cluster is what exists, kept up to date by informers.
type cluster struct {
	config  Config
	client  kubernetes.Interface
	nodes   corelisters.NodeLister
	pods    corelisters.PodLister
	slices  discoverylisters.EndpointSliceLister
	synced  []cache.InformerSynced
	start   func()
	stop    func()        // once, after start
	changed chan struct{} // gets one when pods or endpoints have changed
}

// newCluster prepares the informers. Of the objects only what is used is kept.
func newCluster(config Config, client kubernetes.Interface) (*cluster, error) {
	all := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	ours := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(config.Namespace), informers.WithTransform(slim))
	nodes, pods, endpoints := all.Core().V1().Nodes(), ours.Core().V1().Pods(), ours.Discovery().V1().EndpointSlices()
	c := &cluster{
		config: config, client: client, nodes: nodes.Lister(), pods: pods.Lister(), slices: endpoints.Lister(), changed: make(chan struct{}, 1),
		synced: []cache.InformerSynced{nodes.Informer().HasSynced, pods.Informer().HasSynced, endpoints.Informer().HasSynced},
	}
	ended := make(chan struct{})
	c.start = func() { all.Start(ended); ours.Start(ended) }
	c.stop = func() { close(ended); all.Shutdown(); ours.Shutdown() }
	for _, i := range []cache.SharedIndexInformer{pods.Informer(), endpoints.Informer()} {
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { c.note() }, UpdateFunc: func(any, any) { c.note() }, DeleteFunc: func(any) { c.note() },
		}); err != nil {
			return nil, fmt.Errorf("watch the cluster: %w", err)
		}
	}
	return c, nil
}

func (c *cluster) note() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// slim drops the large parts of objects that nothing here reads.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		o.ManagedFields, o.Annotations = nil, nil
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, Containers: slices.Clone(o.Spec.Containers)}
		for i, c := range o.Spec.Containers {
			o.Spec.Containers[i] = corev1.Container{Resources: c.Resources}
		}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions}
	case *corev1.Node:
		o.ManagedFields, o.Annotations, o.Status.Images = nil, nil, nil
	}
	return object, nil
}

// reach lists a little of what the informers will watch: an error is told at
// once, while they would try again for ever.
func (c *cluster) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	few, core := metav1.ListOptions{Limit: 1}, c.client.CoreV1()
	if _, err := core.Pods(c.config.Namespace).List(ctx, few); err != nil {
		return fmt.Errorf("read the cluster: list pods in namespace %q: %w", c.config.Namespace, err)
	}
	if _, err := c.client.DiscoveryV1().EndpointSlices(c.config.Namespace).List(ctx, few); err != nil {
		return fmt.Errorf("read the cluster: list endpoint slices in namespace %q: %w", c.config.Namespace, err)
	}
	if _, err := core.Nodes().List(ctx, few); err != nil {
		return fmt.Errorf("read the cluster: list nodes: %w", err)
	}
	return nil
}

// wait until the informers, which have been started, know the cluster.
func (c *cluster) wait(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), c.synced...) {
		return errors.Join(ctx.Err(), errors.New("the API server has not listed pods, endpoint slices and nodes within a minute"))
	}
	return nil
}

// isSynced says whether the informers know the cluster.
func (c *cluster) isSynced() bool {
	return !slices.ContainsFunc(c.synced, func(s cache.InformerSynced) bool { return !s() })
}

// topology is what exists now: the ready pods of the components and their
// nodes. A component that is called needs a ready endpoint, too. Round-trip
// times are for the observer to find.
func (c *cluster) topology(context.Context) (heart.Topology, error) {
	t, _, err := c.state()
	return t, err
}

// state gives the topology and where the replicas serve.
func (c *cluster) state() (heart.Topology, map[string]netip.AddrPort, error) {
	addresses, err := c.addresses()
	if err != nil {
		return heart.Topology{}, nil, err
	}
	list, err := c.pods.Pods(c.config.Namespace).List(labels.Everything())
	if err != nil {
		return heart.Topology{}, nil, err
	}
	components, called := c.config.components(), map[string]bool{}
	for _, call := range c.config.Calls {
		called[call.To] = true
	}
	t := heart.Topology{Calls: c.config.Calls}
	on := map[string]bool{}
	for _, p := range list {
		component := p.Labels[c.config.ComponentLabel]
		_, serves := addresses[p.Name]
		if !components[component] || !isReady(p) || called[component] && !serves {
			continue
		}
		on[p.Spec.NodeName] = true
		t.Replicas = append(t.Replicas, heart.Replica{Name: p.Name, Component: component, Node: p.Spec.NodeName, CPULimit: limit(p)})
	}
	slices.SortFunc(t.Replicas, func(a, b heart.Replica) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Name, b.Name))
	})
	t.Nodes, err = c.listNodes(on)
	if err == nil {
		err = c.missing(t, components)
	}
	return t, addresses, err
}

// missing names the components without a replica, of which nothing can be
// decided.
func (c *cluster) missing(t heart.Topology, components map[string]bool) error {
	have := t.Components()
	var none []string
	for name := range components {
		if !slices.Contains(have, name) {
			none = append(none, name)
		}
	}
	if len(none) == 0 {
		return nil
	}
	slices.Sort(none)
	return fmt.Errorf("no ready replica of %v: namespace %q has no ready pod with label %s of that value, or its Service no ready endpoint", none, c.config.Namespace, c.config.ComponentLabel)
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil && p.Spec.NodeName != ""
		}
	}
	return false
}

// limit adds up the CPU limits of the containers; 0 when one has none.
func limit(p *corev1.Pod) float64 {
	sum := 0.0
	for _, c := range p.Spec.Containers {
		cpu, has := c.Resources.Limits[corev1.ResourceCPU]
		if !has {
			return 0
		}
		sum += cpu.AsApproximateFloat64()
	}
	return sum
}

// listNodes gives those that replicas are on, with the cores that pods may
// have.
func (c *cluster) listNodes(on map[string]bool) ([]heart.Node, error) {
	list, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var nodes []heart.Node
	for _, n := range list {
		if on[n.Name] {
			delete(on, n.Name)
			nodes = append(nodes, heart.Node{Name: n.Name, Cores: n.Status.Allocatable.Cpu().AsApproximateFloat64()})
		}
	}
	for name := range on {
		return nil, fmt.Errorf("a ready pod is on node %q, which the API server does not list", name)
	}
	slices.SortFunc(nodes, func(a, b heart.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// addresses of the ready endpoints of the called components, by pod.
func (c *cluster) addresses() (map[string]netip.AddrPort, error) {
	found := map[string]netip.AddrPort{}
	for _, call := range c.config.Calls {
		service := c.config.service(call.To)
		list, err := c.slices.EndpointSlices(c.config.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}))
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if len(s.Ports) == 0 || s.Ports[0].Port == nil {
				continue
			}
			for _, e := range s.Endpoints {
				ready := e.Conditions.Ready == nil || *e.Conditions.Ready
				if !ready || e.TargetRef == nil || e.TargetRef.Kind != "Pod" || len(e.Addresses) == 0 {
					continue
				}
				ip, err := netip.ParseAddr(e.Addresses[0])
				if err != nil {
					return nil, fmt.Errorf("endpoint of pod %s: %w", e.TargetRef.Name, err)
				}
				found[e.TargetRef.Name] = netip.AddrPortFrom(ip, uint16(*s.Ports[0].Port))
			}
		}
	}
	return found, nil
}
