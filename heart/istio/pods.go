package istio

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"heartbed/heart"
)

// pod is one with what the router wants to know of it.
type pod struct{ corev1.Pod }

// readPods lists those that are on a node and have not ended.
func (r *Router) readPods(ctx context.Context, o metav1.ListOptions) ([]pod, error) {
	list, err := r.core.CoreV1().Pods(r.options.Namespace).List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("list pods in namespace %q: %w", r.options.Namespace, err)
	}
	var found []pod
	for _, p := range list.Items {
		if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			found = append(found, pod{p})
		}
	}
	return found, nil
}

// isReady says whether the pod is, or is about to be, among the endpoints.
func (p pod) isReady() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

// wanted are the labels that the router keeps on the pod.
func (p pod) wanted() map[string]string {
	return map[string]string{NodeLabel: labelValue(p.Spec.NodeName), ReplicaLabel: labelValue(p.Name)}
}

// has says whether the pod will have these labels.
func (p pod) has(labels map[string]string) bool {
	for key, value := range labels {
		if p.wanted()[key] != value {
			return false
		}
	}
	return true
}

// ready says whether a ready pod of the component will have the labels.
func (s state) ready(component string, labels map[string]string) bool {
	for _, p := range s.pods {
		if p.Labels[s.label] == component && p.isReady() && p.has(labels) {
			return true
		}
	}
	return false
}

// labelChanges are for the pods of the table's components that lack a label.
func (s state) labelChanges(o Options, table heart.RoutingTable) []Change {
	components := map[string]bool{}
	for _, g := range table.Groups {
		components[g.Component] = true
	}
	var changes []Change
	for _, p := range s.pods {
		labels := p.wanted()
		if !components[p.Labels[s.label]] || p.Labels[NodeLabel] == labels[NodeLabel] && p.Labels[ReplicaLabel] == labels[ReplicaLabel] {
			continue
		}
		before := map[string]any{}
		for key := range labels {
			if value, has := p.Labels[key]; has {
				before[key] = value
			}
		}
		changes = append(changes, Change{
			Action: Label, Kind: "Pod", Name: p.Name, Diff: diff(lines(before), lines(labels)), resource: pods, object: podLabels(p, labels),
		})
	}
	return changes
}

// podLabels is applied to a pod to give it exactly these labels of the
// router's, none taking them away. The UID keeps an apply from making a pod
// that is gone.
func podLabels(p pod, labels map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion("v1")
	u.SetKind("Pod")
	u.SetName(p.Name)
	u.SetNamespace(p.Namespace)
	u.SetUID(p.UID)
	u.SetLabels(labels)
	return u
}
