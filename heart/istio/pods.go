package istio

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"heartbed/heart"
)

// pod is what the router needs of one.
type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// readPods lists those that are on a node and have not ended.
func (r *Router) readPods(ctx context.Context, o metav1.ListOptions) ([]pod, error) {
	list, err := r.in(pods).List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("list pods in namespace %q: %w", r.options.Namespace, err)
	}
	var found []pod
	for _, u := range list.Items {
		var p pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p); err != nil {
			return nil, fmt.Errorf("read pod %s: %w", u.GetName(), err)
		}
		if p.Spec.NodeName != "" && p.Status.Phase != "Succeeded" && p.Status.Phase != "Failed" {
			found = append(found, p)
		}
	}
	return found, nil
}

// isReady says whether the pod is, or is about to be, among the endpoints.
func (p pod) isReady() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && p.Metadata.DeletionTimestamp == nil
		}
	}
	return false
}

// labels are those that the router keeps on the pod.
func (p pod) labels() map[string]string {
	return map[string]string{NodeLabel: labelValue(p.Spec.NodeName), ReplicaLabel: labelValue(p.Metadata.Name)}
}

// has says whether the pod will have these labels.
func (p pod) has(labels map[string]string) bool {
	for key, value := range labels {
		if p.labels()[key] != value {
			return false
		}
	}
	return true
}

// ready says whether a ready pod of the component will have the labels.
func (s state) ready(component string, labels map[string]string) bool {
	for _, p := range s.pods {
		if p.Metadata.Labels[s.label] == component && p.isReady() && p.has(labels) {
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
		labels := p.labels()
		if !components[p.Metadata.Labels[s.label]] || p.Metadata.Labels[NodeLabel] == labels[NodeLabel] && p.Metadata.Labels[ReplicaLabel] == labels[ReplicaLabel] {
			continue
		}
		before := map[string]any{}
		for key := range labels {
			if value, has := p.Metadata.Labels[key]; has {
				before[key] = value
			}
		}
		changes = append(changes, Change{
			Action: Label, Kind: "Pod", Name: p.Metadata.Name, Diff: diff(lines(before), lines(labels)), resource: pods, object: podLabels(p, labels),
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
	u.SetName(p.Metadata.Name)
	u.SetNamespace(p.Metadata.Namespace)
	u.SetUID(p.Metadata.UID)
	u.SetLabels(labels)
	return u
}
