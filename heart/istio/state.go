package istio

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// state is what the namespace holds at the beginning of a call.
type state struct {
	objects map[schema.GroupVersionResource][]unstructured.Unstructured // in order of names
	pods    []pod
	label   string // of a pod's component
}

func (r *Router) read(ctx context.Context) (state, error) {
	s := state{objects: map[schema.GroupVersionResource][]unstructured.Unstructured{}, label: r.options.ComponentLabel}
	for _, resource := range []schema.GroupVersionResource{virtualServices, destinationRules} {
		list, err := r.in(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return s, fmt.Errorf("list %s in namespace %q: %w", resource.Resource, r.options.Namespace, noIstio(err))
		}
		s.objects[resource] = list.Items
	}
	var err error
	s.pods, err = r.readPods(ctx, metav1.ListOptions{LabelSelector: r.options.ComponentLabel})
	return s, err
}

func (s state) find(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	for _, u := range s.objects[resource] {
		if u.GetName() == name {
			return &u
		}
	}
	return nil
}

// owned says whether an object is the router's: it has the label, and the
// router's field manager has applied it.
func owned(o Options, u unstructured.Unstructured) bool {
	return u.GetLabels()[ManagedBy] == o.Manager && slices.Contains(managers(u), o.Manager)
}

func managers(u unstructured.Unstructured) []string {
	var names []string
	for _, f := range u.GetManagedFields() {
		if !slices.Contains(names, f.Manager) {
			names = append(names, f.Manager)
		}
	}
	return names
}

// conflicts finds the objects of another owner that have the wanted one's name
// or say how the same host is routed inside the mesh. Two such objects have no
// defined result.
func (s state) conflicts(o Options, want object) []error {
	var errs []error
	for _, u := range s.objects[want.resource] {
		if owned(o, u) {
			continue
		}
		host := overlap(o, want, u)
		if u.GetName() != want.name && host == "" {
			continue
		}
		found := "the name of ours"
		if host != "" {
			found = "host " + host
		}
		errs = append(errs, fmt.Errorf("%s %s/%s is not ours and has %s: it belongs to %s", u.GetKind(), u.GetNamespace(), u.GetName(), found, owner(u)))
	}
	return errs
}

// owner names whoever made or manages an object, as far as it says.
func owner(u unstructured.Unstructured) string {
	var words []string
	if by := u.GetLabels()[ManagedBy]; by != "" {
		words = append(words, by)
	}
	for _, ref := range u.GetOwnerReferences() {
		words = append(words, ref.Kind+" "+ref.Name)
	}
	if m := managers(u); len(m) > 0 {
		words = append(words, "field managers "+strings.Join(m, ", "))
	}
	if len(words) == 0 {
		return "an unknown owner"
	}
	return strings.Join(words, ", ")
}

// overlap gives the host, as the other object writes it, that is also the
// wanted one's, or "". An object that is bound to gateways only routes other
// requests than ours, and of a wildcard the more specific host takes
// precedence.
func overlap(o Options, want object, other unstructured.Unstructured) string {
	ours := hosts(want.spec)[0]
	if gateways, found, _ := unstructured.NestedStringSlice(other.Object, "spec", "gateways"); found && !slices.Contains(gateways, "mesh") {
		return ""
	}
	spec, _, _ := unstructured.NestedMap(other.Object, "spec")
	for _, h := range hosts(spec) {
		if full := strings.Split(h, "."); len(full) == 1 {
			if h+"."+o.Namespace+".svc."+o.Domain == ours {
				return h
			}
		} else if h == ours || strings.HasPrefix(ours, h+".") {
			return h
		}
	}
	return ""
}

// hosts of a VirtualService or the host of a DestinationRule.
func hosts(spec map[string]any) []string {
	if host, isRule := spec["host"].(string); isRule {
		return []string{host}
	}
	names, _, _ := unstructured.NestedStringSlice(spec, "hosts")
	return names
}

// named says whether the router's VirtualService of this name exists, whose
// routes may name the subsets of the DestinationRule.
func (s state) named(name string) bool { return s.find(virtualServices, name) != nil }

// keepSubsets adds to a DestinationRule the subsets that the VirtualService in
// force names and the new one does not: proxies learn of the two one after the
// other.
func (s state) keepSubsets(want *object) error {
	service, rule := s.find(virtualServices, want.name), s.find(destinationRules, want.name)
	if service == nil || rule == nil {
		return nil
	}
	var routes virtualService
	var old, wanted destinationRule
	if err := decode(*service, &routes); err != nil {
		return err
	}
	if err := decode(*rule, &old); err != nil {
		return err
	}
	if err := decode(unstructured.Unstructured{Object: map[string]any{"spec": want.spec}}, &wanted); err != nil {
		return err
	}
	inUse := map[string]bool{}
	for _, h := range routes.HTTP {
		for _, d := range h.Route {
			inUse[d.Destination.Subset] = true
		}
	}
	for _, s := range old.Subsets {
		if inUse[s.Name] && !slices.ContainsFunc(wanted.Subsets, func(x subset) bool { return x.Name == s.Name }) {
			wanted.Subsets = append(wanted.Subsets, s)
		}
	}
	wanted.sort()
	kept, err := newObject(want.resource, want.name, &wanted)
	want.spec = kept.spec
	return err
}
