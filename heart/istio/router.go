package istio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"heartbed/heart"
)

// ManagedBy is the label of the objects that a router owns. Its value is the
// field manager.
const ManagedBy = "app.kubernetes.io/managed-by"

// Options say which cluster objects the components are. Only Namespace has no
// default.
type Options struct {
	// Namespace holds the pods and Services of all components, and gets the
	// objects. Nothing outside of it is read or written.
	Namespace string
	// Services maps a component to its Service where that has another name.
	Services map[string]string
	// Domain of the cluster; "" = cluster.local.
	Domain string
	// ComponentLabel is the label of a pod that names its component; "" = app.
	ComponentLabel string
	// Manager is the field manager and the value of the label ManagedBy;
	// "" = heart. Two routers in one namespace need different ones, and
	// different components.
	Manager string
	// Localities maps each node to its locality, "region/zone/subzone" as
	// Istio sees it. When set, shares are written as locality distribution
	// instead of subsets, without VirtualServices. That needs a locality a
	// node, a table that is grouped by node, and callers on a node that have
	// the same shares.
	Localities map[string]string
	// Grace is how long Reset leaves proxies to drop routes before it removes
	// the subsets they name; 0 = 2 s.
	Grace time.Duration
	// Log gets what Route changes and warns of; nil = nothing.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Domain = cmp.Or(o.Domain, "cluster.local")
	o.ComponentLabel = cmp.Or(o.ComponentLabel, "app")
	o.Manager = cmp.Or(o.Manager, "heart")
	o.Grace = cmp.Or(o.Grace, 2*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) service(component string) string { return cmp.Or(o.Services[component], component) }

func (o Options) host(component string) string {
	return fmt.Sprintf("%s.%s.svc.%s", o.service(component), o.Namespace, o.Domain)
}

// name of the objects for a component.
func (o Options) name(component string) string { return o.Manager + "-" + o.service(component) }

// Router is a heart.Router that writes Istio's objects. Its methods must not
// be called concurrently.
type Router struct {
	client  dynamic.Interface
	core    kubernetes.Interface
	options Options
}

var _ heart.Router = (*Router)(nil)

// New returns a router that writes with the client and reads pods with core,
// which may use protobuf: of hundreds of pods JSON costs most of a step.
func New(client dynamic.Interface, core kubernetes.Interface, o Options) (*Router, error) {
	if o.Namespace == "" {
		return nil, errors.New("istio router: namespace: found none, expected one")
	}
	return &Router{client, core, o.withDefaults()}, nil
}

func (r *Router) in(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return r.client.Resource(resource).Namespace(r.options.Namespace)
}

// Route puts the table into force. It is tried as a dry run first (see Plan), so
// that an object of another owner, a table that Istio cannot express and
// whatever the API server refuses change nothing. Labels come before the
// subsets that select by them, subsets before the routes that name them, and
// subsets that the routes in force name are left to the next call. When the
// API server fails between two writes, the components written so far have the
// new table and the error says so; the next Route completes it.
func (r *Router) Route(ctx context.Context, table heart.RoutingTable) error {
	plan, err := r.Plan(ctx, table)
	if err != nil {
		return err
	}
	for _, w := range plan.Warnings {
		r.options.Log.Warn("routing table changed on its way", "reason", w)
	}
	for done, c := range plan.Changes {
		if err := r.do(ctx, c, nil); err != nil {
			return fmt.Errorf("%s (after %d of %d changes): %w", c, done, len(plan.Changes), err)
		}
		r.options.Log.Info("changed", "object", c.Kind+"/"+c.Name, "action", c.Action)
	}
	return nil
}

// do makes one change, or tries it.
func (r *Router) do(ctx context.Context, c Change, dryRun []string) error {
	if c.Action == Delete {
		uid, version := c.object.GetUID(), c.object.GetResourceVersion()
		return r.in(c.resource).Delete(ctx, c.Name, metav1.DeleteOptions{
			DryRun: dryRun, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
	}
	_, err := r.in(c.resource).Apply(ctx, c.Name, c.object, metav1.ApplyOptions{FieldManager: r.options.Manager, DryRun: dryRun})
	return err
}

// apply is what is sent to bring an object into being, or into this state. An
// object that exists must be the one that was read, unchanged.
func (r *Router) apply(o object, live *unstructured.Unstructured) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion(o.resource.GroupVersion().String())
	u.SetKind(kinds[o.resource])
	u.SetName(o.name)
	u.SetNamespace(r.options.Namespace)
	u.SetLabels(map[string]string{ManagedBy: r.options.Manager})
	u.Object["spec"] = o.spec
	if live != nil {
		u.SetUID(live.GetUID())
		u.SetResourceVersion(live.GetResourceVersion())
	}
	return u
}
