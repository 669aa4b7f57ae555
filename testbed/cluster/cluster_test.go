package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

const kubeconfig = `
apiVersion: v1
kind: Config
current-context: dev
clusters: [{name: one, cluster: {server: "http://127.0.0.1:1"}}, {name: eu-PROD-1, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
contexts:
- {name: dev, context: {cluster: one, user: me}}
- {name: main, context: {cluster: eu-PROD-1, user: me}}
- {name: half, context: {cluster: gone, user: me}}
`

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// Each fault of the options names its field and is bad input, and for the
// doctor something that is missing.
func TestFaultyOptions(t *testing.T) {
	file := write(t, kubeconfig)
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no file":               {Options{Kubeconfig: "/nowhere/config"}, "kubeconfig: found no context in /nowhere/config"},
		"no YAML":               {Options{Kubeconfig: write(t, "a: [")}, "kubeconfig: error loading config file"},
		"nothing in it":         {Options{Kubeconfig: write(t, "")}, "kubeconfig: found no context"},
		"unknown context":       {Options{Kubeconfig: file, Context: "test"}, `context: found "test", expected one of dev, half, main`},
		"half a context":        {Options{Kubeconfig: file, Context: "half"}, `kubeconfig: context half: `},
		"a production cluster":  {Options{Kubeconfig: file, Context: "main"}, `cluster: found "eu-PROD-1", which is named like production`},
		"a production name":     {Options{Kubeconfig: file, Namespace: "shop-prd"}, `namespace: found "shop-prd", which is named like production`},
		"faulty namespace name": {Options{Kubeconfig: file, Namespace: "No Name"}, `namespace: found "No Name"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Backend{Options: c.options}).Check(t.Context())
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, ErrInput)
			require.ErrorIs(t, err, errors.ErrUnsupported)
		})
	}
}

func TestAPIServerAway(t *testing.T) {
	for _, o := range []Options{{Kubeconfig: write(t, kubeconfig)}, {Kubeconfig: write(t, kubeconfig), Context: "main", Yes: true}} {
		err := (&Backend{Options: o}).Check(t.Context())
		require.ErrorContains(t, err, "API server http://127.0.0.1:1 of context ")
		require.ErrorContains(t, err, "connection refused")
		require.NotErrorIs(t, err, ErrInput)
	}
}

func TestStealCoresIsRefused(t *testing.T) {
	p := testbedtest.Plan()
	p.Antagonists = []testbed.Antagonist{{Nodes: []string{"n1"}, StealCores: 0.5, BurstMin: 1, BurstMax: 1, PauseMin: 1, PauseMax: 1}}
	_, err := (&Backend{}).Start(t.Context(), p)
	require.ErrorContains(t, err, "antagonist 1: found stealCores")
}

// node is a ready node of two cores with a label, "" = none.
func node(name, label string, change func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name + ".host"}}}
	if label != "" {
		n.Labels[NodeLabel] = label
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	if change != nil {
		change(&n)
	}
	return n
}

func TestMapNodes(t *testing.T) {
	plan := []testbed.Node{{Name: "n1", Cores: 1}, {Name: "n2", Cores: 8}}
	taint := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: effect}} }
	}
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	for name, c := range map[string]struct {
		nodes []corev1.Node
		want  []string
		err   string
	}{
		"by name": {nodes: []corev1.Node{node("w3", "", nil), node("w1", "", nil), node("w2", "", nil)}, want: []string{"w1", "w2"}},
		"only those that take pods": {
			nodes: []corev1.Node{node("a", "", taint(corev1.TaintEffectNoSchedule)), node("b", "", notReady), node("c", "", cordoned), node("d", "", nil), node("e", "", taint(corev1.TaintEffectPreferNoSchedule))},
			want:  []string{"d", "e"},
		},
		"by label": {nodes: []corev1.Node{node("w1", "", nil), node("w2", "n2", nil), node("w3", "n1", nil)}, want: []string{"w3", "w2"}},
		"too few": {
			nodes: []corev1.Node{node("a", "", taint(corev1.TaintEffectNoExecute)), node("b", "", notReady), node("c", "", cordoned), node("d", "", nil)},
			err:   "nodes: found 1 that take pods (a is tainted with dedicated; b is NotReady; c is cordoned), expected 2",
		},
		"label missing":                      {nodes: []corev1.Node{node("w1", "n1", nil), node("w2", "", nil)}, err: "nodes: no node has the label heartbed/node=n2"},
		"label twice":                        {nodes: []corev1.Node{node("w1", "n1", nil), node("w2", "n1", nil)}, err: "nodes: found the label heartbed/node=n1 at w1 and w2"},
		"label at a node that takes no pods": {nodes: []corev1.Node{node("w1", "n1", notReady), node("w2", "n2", nil)}, err: "nodes: w1 is NotReady"},
	} {
		t.Run(name, func(t *testing.T) {
			hosts, err := mapNodes(plan, c.nodes)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.ErrorIs(t, err, ErrInput)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, h := range hosts {
				got = append(got, h.name)
				require.Equal(t, h.name+".host", h.Value)
				require.Equal(t, 1.5, h.cores)
				require.Equal(t, 4, h.CPUs)
			}
			require.Equal(t, c.want, got)
			require.Equal(t, []float64{0.5, 0.75}, []float64{hosts[0].Requests, hosts[1].Requests}, "half of the plan's cores, or of the node's")
		})
	}
}

// A damaged journal, or one of a cluster that is gone, removes nothing and says
// what to do.
func TestRemoveRefuses(t *testing.T) {
	file := write(t, kubeconfig)
	for want, e := range map[string]live.Entry{
		"kind is unknown":  {Kind: "disk", Name: "1", Namespace: "x", Kubeconfig: file},
		"without a run":    {Kind: kindNamespace, Namespace: "x", Kubeconfig: file},
		"or a namespace":   {Kind: kindObjects, Name: "1", Kubeconfig: file},
		"does not answer":  {Kind: kindObjects, Name: "1", Namespace: "x", Kubeconfig: file},
		"delete the journ": {Kind: kindNamespace, Name: "1", Namespace: "x", Kubeconfig: "/nowhere"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // shorter than its patience
		require.ErrorContains(t, remove(ctx, e), want)
		cancel()
	}
}
