// Package kube is what the backends on Kubernetes share: the objects of a
// plan's replicas, their life in a namespace, and the watch over their pods.
package kube

import (
	"context"
	"fmt"
	"maps"
	"net/netip"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"heartbed/testbed/live"
)

const (
	// FieldManager owns what we apply.
	FieldManager = "heartbed"

	ManagerLabel   = "app.kubernetes.io/managed-by" // of every object: FieldManager
	ReplicaLabel   = "heartbed/replica"             // of a pod: the name of its objects
	ComponentLabel = "heartbed/component"           // of a pod: the name of its Service
)

// Applied are the options of every server-side apply.
var Applied = metav1.ApplyOptions{FieldManager: FieldManager, Force: true}

// Workloads are the replicas of a plan in a namespace that exists.
type Workloads struct {
	Client    kubernetes.Interface
	Namespace string
	Labels    map[string]string // of every object besides ManagerLabel
	Layout    *live.Layout      // Await writes the addresses
	Hosts     []Host            // in the order of Layout.Nodes
	Image     string
	Pull      corev1.PullPolicy
	Program   string         // path of the workload program in the image
	XDS       netip.AddrPort // of the server that the replicas ask for routes

	Pods []corev1.Pod // in the order of Layout.Replicas, as Await saw them ready
}

// Host is the node of the cluster that stands for a node of the plan.
type Host struct {
	Label, Value string  // by which its pods find it
	CPUs         int     // that a process there sees
	Requests     float64 // cores that the requests of all its replicas add up to
}

// Create applies the Services, and then the pods with the Services' addresses
// in their configuration.
func (w *Workloads) Create(ctx context.Context) error {
	core := w.Client.CoreV1()
	services := map[string]string{}
	for _, c := range w.Layout.Plan.App.Components {
		made, err := core.Services(w.Namespace).Apply(ctx, w.service(c.Name), Applied)
		if err != nil {
			return fmt.Errorf("service of component %s: %w", c.Name, err)
		}
		services[c.Name] = fmt.Sprintf("%s:%d", made.Spec.ClusterIP, live.GRPCPort)
	}
	// The API server takes its time for each, most of it waiting for the disk.
	replicas, ctx := errgroup.WithContext(ctx)
	replicas.SetLimit(createParallel)
	for k := range w.Layout.Replicas {
		replicas.Go(func() error { return w.createReplica(ctx, k, services) })
	}
	return replicas.Wait()
}

// createParallel is how many replicas are applied at the same time.
const createParallel = 8

func (w *Workloads) createReplica(ctx context.Context, k int, services map[string]string) error {
	name := w.Layout.Replicas[k].Name
	config, err := w.config(k, services)
	if err != nil {
		return err
	}
	if _, err := w.Client.CoreV1().ConfigMaps(w.Namespace).Apply(ctx, config, Applied); err != nil {
		return fmt.Errorf("configuration of replica %s: %w", name, err)
	}
	pod, err := w.pod(k)
	if err != nil {
		return err
	}
	if _, err := w.Client.CoreV1().Pods(w.Namespace).Apply(ctx, pod, Applied); err != nil {
		return fmt.Errorf("pod of replica %s: %w", name, err)
	}
	return nil
}

// Await waits until all pods are ready, and notes their addresses in the layout.
func (w *Workloads) Await(ctx context.Context) error {
	var names []string
	for k := range w.Layout.Replicas {
		names = append(names, w.objectName(k))
	}
	pods, err := AwaitPods(ctx, w.Client, w.Namespace, names)
	if err != nil {
		return err
	}
	w.Pods = pods
	for k := range pods {
		addr, err := Address(pods[k])
		if err != nil {
			return err
		}
		r := &w.Layout.Replicas[k]
		r.Addr = addr
		w.Layout.Nodes[r.On].Addrs = append(w.Layout.Nodes[r.On].Addrs, addr)
	}
	return nil
}

// Address of a pod that runs.
func Address(pod corev1.Pod) (netip.Addr, error) {
	addr, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return addr, fmt.Errorf("pod %s: address: %w", pod.Name, err)
	}
	return addr, nil
}

// labels are those of an object with some of its own.
func (w *Workloads) labels(own map[string]string) map[string]string {
	all := map[string]string{ManagerLabel: FieldManager}
	maps.Copy(all, w.Labels)
	maps.Copy(all, own)
	return all
}
