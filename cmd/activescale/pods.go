package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"heartbed/activescale/provider"
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

// compact speaks protobuf, which makes a list of thousands of pods cheap. The
// limit of client-go, five requests a second, is for programs that ask in loops.
func compact(config *rest.Config) (kubernetes.Interface, error) {
	c := rest.CopyConfig(config)
	c.QPS = -1
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return kubernetes.NewForConfig(c)
}

// pods are those of the cluster, and nodes where their costs are wanted, kept up
// to date by informers.
type pods struct {
	lister corelisters.PodLister
	nodes  corelisters.NodeLister // nil: nobody wants them
	synced func() bool
	start  func()
	stop   func() // once, after start
}

func newPods(client kubernetes.Interface, nodes bool) *pods {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slim))
	informer := factory.Core().V1().Pods()
	p := &pods{lister: informer.Lister()}
	all := []cache.InformerSynced{informer.Informer().HasSynced}
	if nodes {
		informer := factory.Core().V1().Nodes()
		p.nodes = informer.Lister()
		all = append(all, informer.Informer().HasSynced)
	}
	p.synced = func() bool { return !slices.ContainsFunc(all, func(s cache.InformerSynced) bool { return !s() }) }
	ended := make(chan struct{})
	p.start = func() { factory.Start(ended) }
	p.stop = func() { close(ended); factory.Shutdown() }
	return p
}

// slim keeps of a pod what is used: who it is, how it is found, and whether it
// lives. The rest would be most of the program's memory.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Labels: o.Labels, Annotations: used(o.Annotations), DeletionTimestamp: o.DeletionTimestamp,
			},
			Spec:   corev1.PodSpec{NodeName: o.Spec.NodeName, ServiceAccountName: o.Spec.ServiceAccountName},
			Status: corev1.PodStatus{Phase: o.Status.Phase, StartTime: o.Status.StartTime},
		}, nil
	case *corev1.Node:
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Annotations: used(o.Annotations)}}, nil
	}
	return object, nil // a tombstone
}

// used are the annotations that something here reads.
func used(all map[string]string) map[string]string {
	kept := map[string]string{}
	if cost, has := all[provider.CostAnnotation]; has {
		kept[provider.CostAnnotation] = cost
	}
	if all[injected] != "" {
		kept[injected] = "true" // what Istio has added, at length
	}
	return kept
}

// cost of a request on the pod's node, as an annotation of that tells.
func (p *pods) cost(pod *corev1.Pod) (float64, bool) {
	node, err := p.nodes.Get(pod.Spec.NodeName)
	if err != nil {
		return 0, false // gone, or not known yet
	}
	text, told := node.Annotations[provider.CostAnnotation]
	if !told {
		return 0, false
	}
	cost, err := provider.ParseCost(text)
	if err != nil {
		return 0, true // which the provider counts as none that can be meant
	}
	return cost, true
}

// reachPods lists one: an error is told at once, while an informer would try
// again for ever.
func reachPods(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if _, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("read the cluster: list pods: %w", err)
	}
	return nil
}

// isLive says whether a pod's load counts: it has started, has not ended and is
// not about to.
func isLive(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}

// age of a pod, 0 while it has not started.
func age(p *corev1.Pod, now time.Time) time.Duration {
	if p.Status.StartTime == nil {
		return 0
	}
	return now.Sub(p.Status.StartTime.Time)
}
