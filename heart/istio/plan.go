package istio

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"heartbed/heart"
)

// ErrNoIstio says that the cluster does not know Istio's objects.
var ErrNoIstio = errors.New("the cluster has no resource of networking.istio.io/v1: install Istio, or its CustomResourceDefinitions")

// What a Change does.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
	Label  = "label"
)

// Change is one write that Route would make.
type Change struct {
	Action, Kind, Name string
	// Diff shows the lines of the spec, or of a pod's labels, that go ("- ")
	// and come ("+ "), among some that stay.
	Diff string

	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
}

// String names the change and its object.
func (c Change) String() string { return c.Action + " " + c.Kind + " " + c.Name }

// Plan is what Route would do, in order.
type Plan struct {
	Changes  []Change
	Warnings []string
}

// order in which objects are written: what is named before what names it.
func order(resource schema.GroupVersionResource) int {
	return slices.Index([]schema.GroupVersionResource{pods, destinationRules, virtualServices}, resource)
}

// Plan says what Route would change, and changes nothing. Each write has been
// tried as a dry run, but of labels only the first: there may be hundreds, they
// are alike, and Route begins with them. All errors are joined.
func (r *Router) Plan(ctx context.Context, table heart.RoutingTable) (Plan, error) {
	live, err := r.read(ctx)
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	want, warnings, err := build(r.options, table, live.ready)
	if err != nil {
		return Plan{}, err
	}
	p.Warnings = warnings
	var errs []error
	for _, o := range want {
		errs = append(errs, live.conflicts(r.options, o)...)
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	if p.Changes, err = r.changes(live, want, table); err != nil {
		return Plan{}, err
	}
	for i, c := range p.Changes {
		if i > 0 && c.Action == Label {
			continue
		}
		if err := r.do(ctx, c, []string{metav1.DryRunAll}); err != nil {
			errs = append(errs, fmt.Errorf("%s (dry run): %w", c, err))
		}
	}
	return p, errors.Join(errs...)
}

// changes lists labels, then objects in the order wanted, then what is to go.
func (r *Router) changes(live state, want []object, table heart.RoutingTable) ([]Change, error) {
	changes := live.labelChanges(r.options, table)
	wanted := map[string]bool{}
	for _, o := range want {
		wanted[o.resource.Resource+"/"+o.name] = true
		current := live.find(o.resource, o.name)
		if o.resource == destinationRules {
			if err := live.keepSubsets(&o); err != nil {
				return nil, err
			}
		}
		c := Change{Action: Create, Kind: kinds[o.resource], Name: o.name, resource: o.resource, object: r.apply(o, current)}
		var before any
		if current != nil {
			if before = current.Object["spec"]; reflect.DeepEqual(before, any(o.spec)) {
				continue
			}
			c.Action = Update
		}
		c.Diff = diff(lines(before), lines(o.spec))
		changes = append(changes, c)
	}
	for _, resource := range []schema.GroupVersionResource{virtualServices, destinationRules} {
		for _, u := range live.objects[resource] {
			if wanted[resource.Resource+"/"+u.GetName()] || !owned(r.options, u) || resource == destinationRules && live.named(u.GetName()) {
				continue
			}
			changes = append(changes, Change{
				Action: Delete, Kind: u.GetKind(), Name: u.GetName(), Diff: diff(lines(u.Object["spec"]), nil), resource: resource, object: &u,
			})
		}
	}
	return changes, nil
}

// noIstio explains the API server's answer to a resource that it lacks.
func noIstio(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w (%w)", ErrNoIstio, err)
	}
	return err
}
