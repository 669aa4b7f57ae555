package istio_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"heartbed/heart"
	"heartbed/heart/istio"
	"heartbed/heart/istio/istiotest"
	"heartbed/testbed/testbedtest"
)

var (
	virtualServices  = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
	destinationRules = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}
)

// shop is a namespace of a real API server with pods of d and e.
type shop struct {
	*istiotest.Cluster
	client    dynamic.Interface
	namespace string
}

func newShop(t *testing.T, c *istiotest.Cluster, namespace string) shop {
	c.CreateNamespace(t, namespace)
	for name, node := range map[string]string{"d-1": "n1", "d-2": "n2", "e-1": "n1", "e-2": "n2", "e-3": "n2", "e-4": "n3"} {
		c.CreatePod(t, istiotest.Pod{Namespace: namespace, Name: name, Node: node, Labels: map[string]string{"app": name[:1]}})
	}
	return shop{c, dynamic.NewForConfigOrDie(c.Config), namespace}
}

func (s shop) router(t *testing.T, o istio.Options) *istio.Router {
	o.Namespace = s.namespace
	o.Grace = time.Millisecond
	r, err := istio.New(s.client, s.Client(), o)
	require.NoError(t, err)
	return r
}

// all lists what matters in the namespace, with what tells a change.
func (s shop) all(t *testing.T) []string {
	var found []string
	for _, resource := range []schema.GroupVersionResource{virtualServices, destinationRules, {Version: "v1", Resource: "pods"}} {
		list, err := s.client.Resource(resource).Namespace(s.namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, u := range list.Items {
			found = append(found, fmt.Sprintf("%s/%s %s", resource.Resource, u.GetName(), u.GetResourceVersion()))
		}
	}
	slices.Sort(found)
	return found
}

func (s shop) get(t *testing.T, resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	u, err := s.client.Resource(resource).Namespace(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return u
}

func (s shop) subsets(t *testing.T) []string {
	list, _, err := unstructured.NestedSlice(s.get(t, destinationRules, "heart-e").Object, "spec", "subsets")
	require.NoError(t, err)
	var names []string
	for _, x := range list {
		names = append(names, x.(map[string]any)["name"].(string)[:4])
	}
	return names
}

// create makes an object of another owner.
func (s shop) create(t *testing.T, resource schema.GroupVersionResource, kind, name string, labels map[string]any, spec map[string]any) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name, "labels": labels}, "spec": spec,
	}}
	_, err := s.client.Resource(resource).Namespace(s.namespace).Create(t.Context(), u, metav1.CreateOptions{FieldManager: "somebody"})
	require.NoError(t, err)
}

func actions(p istio.Plan) []string {
	var all []string
	for _, c := range p.Changes {
		all = append(all, c.String())
	}
	return all
}

// TestRouterOnAnAPIServer runs against a real one, without a cluster.
func TestRouterOnAnAPIServer(t *testing.T) {
	testbedtest.Require(t, "kind", istiotest.Check())
	c := istiotest.Start(t)

	bare := newShop(t, c, "bare")
	require.ErrorIs(t, bare.router(t, istio.Options{}).Route(t.Context(), istio.ByNode([3]uint32{1, 1, 1})), istio.ErrNoIstio)
	_, err := bare.router(t, istio.Options{}).Reset(t.Context())
	require.NoError(t, err, "nothing to remove where there is no Istio")

	c.InstallIstio(t)
	for name, test := range map[string]func(*testing.T, shop){
		"life": testLife, "owners": testOwners, "edited": testEdited, "refused": testRefused, "locality": testLocality, "restart": testRestart,
	} {
		t.Run(name, func(t *testing.T) { test(t, newShop(t, c, name)) })
	}
}

// testLife: plan, write, write nothing again, change, remove.
func testLife(t *testing.T, s shop) {
	r := s.router(t, istio.Options{})
	before := s.all(t)
	first := istio.ByNode([3]uint32{60, 30, 10}, [3]uint32{0, 100, 0})
	plan, err := r.Plan(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, []string{
		"label Pod d-1", "label Pod d-2", "label Pod e-1", "label Pod e-2", "label Pod e-3", "label Pod e-4",
		"create DestinationRule heart-e", "create VirtualService heart-e",
	}, actions(plan))
	require.Equal(t, before, s.all(t), "a plan changes nothing")

	require.NoError(t, r.Route(t.Context(), first))
	pod := s.get(t, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "e-3")
	require.Equal(t, map[string]string{"app": "e", istio.NodeLabel: "n2", istio.ReplicaLabel: "e-3"}, pod.GetLabels())
	inForce := s.all(t)
	require.NoError(t, r.Route(t.Context(), first))
	require.Equal(t, inForce, s.all(t), "a table in force is not written again")

	second := istio.ByNode([3]uint32{50, 0, 50}, [3]uint32{100, 0, 0})
	plan, err = r.Plan(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, []string{"update VirtualService heart-e"}, actions(plan), "the rule keeps the subset that routes in force name")
	require.Contains(t, plan.Changes[0].Diff, "- ")
	require.Contains(t, plan.Changes[0].Diff, "+           weight: 50\n")
	require.NoError(t, r.Route(t.Context(), second))
	require.Equal(t, []string{"e-n1", "e-n2", "e-n3"}, s.subsets(t))
	require.NoError(t, r.Route(t.Context(), second))
	require.Equal(t, []string{"e-n1", "e-n3"}, s.subsets(t), "one call later nothing names it")

	none := heart.RoutingTable{}
	require.NoError(t, r.Route(t.Context(), none))
	require.Equal(t, []string{"e-n1", "e-n3"}, s.subsets(t), "the rule outlives the routes that name it")
	require.NoError(t, r.Route(t.Context(), none))
	require.NotContains(t, fmt.Sprint(s.all(t)), "heart-e")

	require.NoError(t, r.Route(t.Context(), first))
	s.create(t, virtualServices, "VirtualService", "other", nil, map[string]any{"hosts": []any{"other"}, "http": []any{}})
	done, err := r.Reset(t.Context())
	require.NoError(t, err)
	require.Len(t, done, 8)
	require.Contains(t, fmt.Sprint(s.all(t)), "virtualservices/other")
	require.NotContains(t, fmt.Sprint(s.all(t)), "heart-e")
	for name := range map[string]bool{"d-1": true, "e-3": true} {
		pod := s.get(t, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, name)
		require.Equal(t, map[string]string{"app": name[:1]}, pod.GetLabels())
	}
	done, err = r.Reset(t.Context())
	require.NoError(t, err)
	require.Empty(t, done)
}

// testOwners: what others own stops a table before anything is written.
func testOwners(t *testing.T, s shop) {
	r := s.router(t, istio.Options{})
	rt := istio.ByNode([3]uint32{1, 1, 1})
	for i, c := range []struct {
		resource schema.GroupVersionResource
		kind     string
		name     string
		labels   map[string]any
		spec     map[string]any
		want     string // "" = no conflict
	}{
		{virtualServices, "VirtualService", "mine", nil, map[string]any{"hosts": []any{"x", "e"}}, "VirtualService owners/mine is not ours and has host e: it belongs to field managers somebody"},
		{destinationRules, "DestinationRule", "theirs", map[string]any{istio.ManagedBy: "Helm"}, map[string]any{"host": "e.owners.svc.cluster.local"}, "DestinationRule owners/theirs is not ours and has host e.owners.svc.cluster.local: it belongs to Helm, field managers somebody"},
		{destinationRules, "DestinationRule", "heart-e", nil, map[string]any{"host": "other"}, "DestinationRule owners/heart-e is not ours and has the name of ours"},
		{destinationRules, "DestinationRule", "heart-e", map[string]any{istio.ManagedBy: "heart"}, map[string]any{"host": "other"}, "it belongs to heart, field managers somebody"},
		{virtualServices, "VirtualService", "edge", nil, map[string]any{"hosts": []any{"e.owners"}, "gateways": []any{"edge"}}, ""},
		{virtualServices, "VirtualService", "namesake", nil, map[string]any{"hosts": []any{"e.elsewhere.svc.cluster.local"}}, ""},
	} {
		s.create(t, c.resource, c.kind, c.name, c.labels, c.spec)
		before := s.all(t)
		err := r.Route(t.Context(), rt)
		if c.want == "" {
			require.NoError(t, err, i)
		} else {
			require.ErrorContains(t, err, c.want)
			require.Equal(t, before, s.all(t), "nothing is changed")
			require.NoError(t, s.client.Resource(c.resource).Namespace(s.namespace).Delete(t.Context(), c.name, metav1.DeleteOptions{}))
		}
	}
	// A second router sees the first as another owner.
	err := s.router(t, istio.Options{Manager: "second"}).Route(t.Context(), rt)
	require.ErrorContains(t, err, "it belongs to heart, field managers heart")
	done, err := s.router(t, istio.Options{Manager: "second"}).Reset(t.Context())
	require.NoError(t, err)
	require.Empty(t, done)
}

// testEdited: somebody has changed weights of ours. They stand until that
// somebody gives them up.
func testEdited(t *testing.T, s shop) {
	r := s.router(t, istio.Options{})
	require.NoError(t, r.Route(t.Context(), istio.ByNode([3]uint32{1, 1, 1})))
	u := s.get(t, virtualServices, "heart-e")
	require.NoError(t, unstructured.SetNestedSlice(u.Object, []any{}, "spec", "http"))
	_, err := s.client.Resource(virtualServices).Namespace(s.namespace).Update(t.Context(), u, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	before := s.all(t)
	err = r.Route(t.Context(), istio.ByNode([3]uint32{1, 1, 2}))
	require.ErrorContains(t, err, "update VirtualService heart-e (dry run)")
	require.ErrorContains(t, err, `conflict with "kubectl-edit"`)
	require.Equal(t, before, s.all(t))
}

// testRefused: what the API server refuses of one component keeps the others
// from changing, too.
func testRefused(t *testing.T, s shop) {
	rt := istio.ByNode([3]uint32{1, 1, 1})
	rt.Routes = append(rt.Routes, heart.Route{From: "e@n1", To: "d", Balancer: heart.Weighted, Shares: []heart.Share{{To: "d@n1", Weight: 1}}})
	before := s.all(t)
	err := s.router(t, istio.Options{Services: map[string]string{"d": "not_a_name"}}).Route(t.Context(), rt)
	require.ErrorContains(t, err, "create DestinationRule heart-not_a_name (dry run)")
	require.Equal(t, before, s.all(t))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.router(t, istio.Options{}).Route(ctx, rt), context.Canceled)
}

// testLocality goes from subsets to locality distribution and back.
func testLocality(t *testing.T, s shop) {
	rt := istio.ByNode([3]uint32{1, 1, 2}, [3]uint32{0, 1, 0})
	require.NoError(t, s.router(t, istio.Options{}).Route(t.Context(), rt))
	local := s.router(t, istio.Options{Localities: map[string]string{"n1": "r/z/1", "n2": "r/z/2", "n3": "r/z/3"}})
	require.NoError(t, local.Route(t.Context(), rt))
	require.NoError(t, local.Route(t.Context(), rt))
	require.Empty(t, s.subsets(t))
	require.NotContains(t, fmt.Sprint(s.all(t)), "virtualservices/")
	require.NoError(t, s.router(t, istio.Options{}).Route(t.Context(), rt))
	require.Len(t, s.subsets(t), 3)
}

// testRestart: while the API server is away a table is an error, and later
// the same router goes on.
func testRestart(t *testing.T, s shop) {
	r := s.router(t, istio.Options{})
	require.NoError(t, r.Route(t.Context(), istio.ByNode([3]uint32{1, 1, 1})))
	before := s.all(t)
	s.StopServer()
	require.ErrorContains(t, r.Route(t.Context(), istio.ByNode([3]uint32{1, 1, 2})), "list virtualservices")
	s.StartServer(t)
	require.Equal(t, before, s.all(t))
	require.NoError(t, r.Route(t.Context(), istio.ByNode([3]uint32{1, 1, 2})))
	require.NotEqual(t, before, s.all(t))
}
