package cluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"heartbed/testbed"
	"heartbed/testbed/kube"
)

// NodeLabel is the label of a Kubernetes node that holds the name of the node
// of the plan that it stands for.
const NodeLabel = "heartbed/node"

// host is the node of the cluster that stands for a node of the plan.
type host struct {
	kube.Host
	name  string
	cores float64 // that its pods may use together
}

// requested is the part of a plan's node that the requests of its replicas add
// up to; the rest is for other pods of the cluster.
const requested = 0.5

// mapNodes finds the cluster's nodes for those of the plan: by their label, or
// without any in the order of their names.
func mapNodes(plan []testbed.Node, nodes []corev1.Node) ([]host, error) {
	usable, why := schedulable(nodes)
	labelled := map[string]corev1.Node{}
	for _, n := range nodes {
		name, has := n.Labels[NodeLabel]
		if !has {
			continue
		}
		if other, twice := labelled[name]; twice {
			return nil, input("nodes", "found the label %s=%s at %s and %s, expected it at one node", NodeLabel, name, other.Name, n.Name)
		}
		labelled[name] = n
	}
	var hosts []host
	var lacks []string
	for i, p := range plan {
		n, has := labelled[p.Name]
		switch {
		case len(labelled) > 0 && !has:
			lacks = append(lacks, fmt.Sprintf("no node has the label %s=%s", NodeLabel, p.Name))
		case len(labelled) > 0 && why[n.Name] != "":
			lacks = append(lacks, fmt.Sprintf("%s is %s", n.Name, why[n.Name]))
		case len(labelled) > 0:
			hosts = append(hosts, hostOf(p, n))
		case i < len(usable):
			hosts = append(hosts, hostOf(p, usable[i]))
		}
	}
	if len(lacks) > 0 {
		return nil, input("nodes", "%s", strings.Join(lacks, "; "))
	}
	if len(hosts) < len(plan) {
		return nil, input("nodes", "found %d that take pods%s, expected %d", len(usable), reasons(nodes, why), len(plan))
	}
	return hosts, nil
}

func hostOf(p testbed.Node, n corev1.Node) host {
	h := host{name: n.Name, cores: n.Status.Allocatable.Cpu().AsApproximateFloat64()}
	h.Label, h.Value = corev1.LabelHostname, n.Labels[corev1.LabelHostname]
	h.CPUs = int(n.Status.Capacity.Cpu().Value())
	h.Requests = requested * min(p.Cores, h.cores)
	return h
}

// schedulable are the nodes that take pods of ours, by name, and why the
// others do not.
func schedulable(nodes []corev1.Node) (usable []corev1.Node, why map[string]string) {
	why = map[string]string{}
	for _, n := range nodes {
		switch taint := hardTaint(n); {
		case len(kube.NotReady([]corev1.Node{n})) > 0:
			why[n.Name] = "NotReady"
		case n.Spec.Unschedulable:
			why[n.Name] = "cordoned"
		case taint != "":
			why[n.Name] = "tainted with " + taint
		default:
			usable = append(usable, n)
		}
	}
	slices.SortFunc(usable, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return usable, why
}

func hardTaint(n corev1.Node) string {
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			return t.Key
		}
	}
	return ""
}

// reasons says why nodes cannot be used, as a parenthesis.
func reasons(nodes []corev1.Node, why map[string]string) string {
	var said []string
	for _, n := range nodes {
		if w := why[n.Name]; w != "" {
			said = append(said, n.Name+" is "+w)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, "; ") + ")"
}
