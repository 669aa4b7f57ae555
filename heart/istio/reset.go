package istio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reset removes the router's objects and its labels from pods, and nothing
// else, and gives what it removed. It goes on after an error; all are joined.
// Istio then balances as if there had been no router. Reset may be repeated.
func (r *Router) Reset(ctx context.Context) ([]Change, error) {
	var done []Change
	var errs []error
	note := func(changes []Change, err error) {
		done, errs = append(done, changes...), append(errs, err)
	}
	note(r.remove(ctx, virtualServices))
	if len(done) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(r.options.Grace):
		}
	}
	note(r.remove(ctx, destinationRules))
	note(r.unlabel(ctx))
	return done, errors.Join(errs...)
}

// remove deletes the router's objects of one resource. A cluster without
// Istio has none.
func (r *Router) remove(ctx context.Context, resource schema.GroupVersionResource) ([]Change, error) {
	list, err := r.in(resource).List(ctx, metav1.ListOptions{LabelSelector: ManagedBy + "=" + r.options.Manager})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s in namespace %q: %w", resource.Resource, r.options.Namespace, err)
	}
	var done []Change
	var errs []error
	for _, u := range list.Items {
		if !owned(r.options, u) {
			continue
		}
		c := Change{Action: Delete, Kind: u.GetKind(), Name: u.GetName(), Diff: diff(lines(u.Object["spec"]), nil), resource: resource, object: &u}
		if err := r.do(ctx, c, nil); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", c, err))
			continue
		}
		done = append(done, c)
	}
	return done, errors.Join(errs...)
}

// unlabel takes the labels from the pods that have them from this router.
func (r *Router) unlabel(ctx context.Context) ([]Change, error) {
	found, err := r.readPods(ctx, metav1.ListOptions{LabelSelector: NodeLabel})
	if err != nil {
		return nil, err
	}
	var done []Change
	var errs []error
	for _, p := range found {
		u := unstructured.Unstructured{}
		u.SetManagedFields(p.ManagedFields)
		if !slices.Contains(managers(u), r.options.Manager) {
			continue
		}
		c := Change{Action: Label, Kind: "Pod", Name: p.Name, Diff: diff(lines(p.wanted()), nil), resource: pods, object: podLabels(p, nil)}
		if err := r.do(ctx, c, nil); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("%s: %w", c, err))
			continue
		}
		done = append(done, c)
	}
	return done, errors.Join(errs...)
}
