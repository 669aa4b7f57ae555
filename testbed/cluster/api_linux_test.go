package cluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"heartbed/heart/istio/istiotest"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// What a real API server allows and keeps. It has no nodes.

func TestRightsAndNamespace(t *testing.T) {
	testbedtest.Require(t, "kind", istiotest.Check())
	c := istiotest.Start(t)
	for _, f := range []struct {
		name string
		do   func(*testing.T, *istiotest.Cluster)
	}{
		{"the administrator may", adminMay},
		{"all missing rights at once", missingRights},
		{"just enough rights", enoughRights},
		{"pods of somebody else", foreignPods},
		{"one run at a time, and down", oneRun},
		{"no nodes", noNodes},
	} {
		t.Run(f.name, func(t *testing.T) { f.do(t, c) })
	}
}

// as is the options of a user without rights of its own, "" = the administrator.
func as(t *testing.T, c *istiotest.Cluster, user, namespace string) Options {
	t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	require.NoError(t, err)
	for _, u := range config.AuthInfos {
		u.Impersonate = user
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return Options{Kubeconfig: file, Namespace: namespace, Image: "ours:1", Journals: t.TempDir()}
}

func adminMay(t *testing.T, c *istiotest.Cluster) {
	o := as(t, c, "", "fresh")
	require.NoError(t, (&Backend{Options: o}).Check(t.Context()))
	o.Image = ""
	err := (&Backend{Options: o}).Check(t.Context())
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "image: found none")
}

func missingRights(t *testing.T, c *istiotest.Cluster) {
	err := (&Backend{Options: as(t, c, "stranger", "fresh")}).Check(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	for _, want := range []string{
		"lacks the right to list nodes;", "get namespaces in namespace fresh;", "create, patch, list, deletecollection pods in namespace fresh;",
		"create pods/portforward in", "create, patch, list, delete services in", "create, patch, deletecollection configmaps in",
	} {
		require.ErrorContains(t, err, want)
	}
}

// The rights that docs/own-cluster.md tells an administrator to give are enough.
func enoughRights(t *testing.T, c *istiotest.Cluster) {
	c.CreateNamespace(t, "lab")
	raw, err := os.ReadFile("../../docs/own-cluster.md")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(raw), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	client := dynamic.NewForConfigOrDie(c.Config)
	objects := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 1000)
	for {
		var u unstructured.Unstructured
		if err := objects.Decode(&u); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		kind := rbac.SchemeGroupVersion.WithResource(strings.ToLower(u.GetKind()) + "s")
		_, err := client.Resource(kind).Namespace(u.GetNamespace()).Create(t.Context(), &u, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, (&Backend{Options: as(t, c, "me", "lab")}).Check(t.Context()))
	err = (&Backend{Options: as(t, c, "me", "other")}).Check(t.Context())
	require.ErrorContains(t, err, "get namespaces in namespace other")
}

func pod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func foreignPods(t *testing.T, c *istiotest.Cluster) {
	c.CreateNamespace(t, "shop")
	_, err := c.Client().CoreV1().Pods("shop").Create(t.Context(), pod("till", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	tg, err := as(t, c, "", "shop").target()
	require.NoError(t, err)
	j, run, err := live.NewRun(t.TempDir())
	require.NoError(t, err)
	err = tg.claim(t.Context(), j, run, nil)
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "namespace: found pod till of somebody else in shop")
	require.NoError(t, j.Close(t.Context(), remove))
	_, err = c.Client().CoreV1().Pods("shop").Get(t.Context(), "till", metav1.GetOptions{})
	require.NoError(t, err, "what is not ours stays")
}

// A second run is refused while the first has the namespace; what a killed one
// left is removed by its journal, and nothing else.
func oneRun(t *testing.T, c *istiotest.Cluster) {
	c.CreateNamespace(t, "shared")
	o := as(t, c, "", "shared")
	tg, err := o.target()
	require.NoError(t, err)
	const killed = "0badcafe"
	dead, err := live.OpenJournal(o.Journals, killed, 1<<30, 1) // no such process
	require.NoError(t, err)
	require.NoError(t, tg.claim(t.Context(), dead, killed, nil))
	require.NoError(t, dead.Leave())
	core := c.Client().CoreV1()
	ours := map[string]string{kube.ManagerLabel: kube.FieldManager, runLabel: killed}
	_, err = core.Pods("shared").Create(t.Context(), pod("a1", ours), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.Services("shared").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: ours}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.ConfigMaps("shared").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	second, run, err := live.NewRun(t.TempDir())
	require.NoError(t, err)
	require.ErrorContains(t, tg.claim(t.Context(), second, run, nil), "namespace shared is in use by run 0badcafe; if that was killed")
	require.NoError(t, second.Close(t.Context(), remove))
	_, err = core.Pods("shared").Get(t.Context(), "a1", metav1.GetOptions{})
	require.NoError(t, err, "the second run removes nothing of the first")

	require.ErrorContains(t, CheckClean(o.Journals), killed)
	done, err := Down(t.Context(), o.Journals)
	require.NoError(t, err)
	require.Equal(t, []live.Removed{{Run: killed, Changes: 1}}, done)
	require.NoError(t, CheckClean(o.Journals))
	pods, err := core.Pods("shared").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items)
	services, err := core.Services("shared").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, services.Items)
	maps, err := core.ConfigMaps("shared").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, maps.Items, 1)
	require.Equal(t, "theirs", maps.Items[0].Name)
	again, err := Down(t.Context(), o.Journals)
	require.NoError(t, err)
	require.Empty(t, again)
}

func noNodes(t *testing.T, c *istiotest.Cluster) {
	b := &Backend{Options: as(t, c, "", "fresh")}
	_, err := b.Start(t.Context(), testbedtest.Plan())
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "nodes: found 0 that take pods, expected 2")
	require.NoError(t, CheckClean(b.Options.Journals))
	require.NoError(t, b.Close())
}
