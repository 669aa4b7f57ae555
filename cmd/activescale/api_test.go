package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"heartbed/cmd/internal/cli"
)

// TestAPI runs the command with the chart's flags and rights behind a real API
// server, and asks that one.
func TestAPI(t *testing.T) {
	l := newLive(t, nil)
	l.install(t)
	r := l.start(t)
	r.waitReady(t)
	l.serving(t, "cart-1", "cart")
	l.serving(t, "cart-2", "cart")
	l.serving(t, "web-1", "web")
	l.serving(t, "idle-1", "cart")

	t.Run("nothing pushed", func(t *testing.T) {
		_, err := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dcart")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		status, text := r.page(t, "/readyz")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, "degraded: no proxy pushes to this replica")
	})

	one, two := pushes(t, r.grpc, "cart-1", 40), pushes(t, r.grpc, "cart-2", 3)
	pushes(t, r.grpc, "web-1", 0)
	pushes(t, r.grpc, "stranger-1", 7) // there is no such pod
	soon(t, "three pods", r.log, func() bool {
		found, _ := l.values(t, "inbound_active_requests", "")
		return len(found) == 3
	})

	t.Run("discovery", func(t *testing.T) { testDiscovery(t, l) })
	t.Run("by selector", func(t *testing.T) {
		found, err := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dcart")
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.Equal(t, "40", found["cart-1"].Value)
		require.Equal(t, "3", found["cart-2"].Value)
		require.Equal(t, "Pod", found["cart-1"].DescribedObject.Kind)
	})
	t.Run("versions", func(t *testing.T) { testVersions(t, l) })
	t.Run("not found", func(t *testing.T) {
		for _, path := range []string{"pods/idle-1/inbound_active_requests", "pods/none/inbound_active_requests", "pods/cart-1/no_such_metric", "services/cart/inbound_active_requests"} {
			_, err := l.raw(t, root+"v1beta2/namespaces/shop/"+path)
			require.True(t, apierrors.IsNotFound(err), "%s: %v", path, err)
		}
		for _, query := range []string{"?labelSelector=app%3Dnone"} {
			_, err := l.values(t, "inbound_active_requests", query)
			require.Error(t, err, query)
		}
	})
	t.Run("documented answers", func(t *testing.T) { testDocumentedAnswers(t, l) })
	t.Run("one flush, one answer", func(t *testing.T) { testOneFlush(t, l, r) })
	t.Run("its own metrics", func(t *testing.T) {
		_, text := r.page(t, "/metrics")
		for _, name := range []string{"activescale_sink_streams ", "activescale_store_seconds_bucket", "metrics_apiserver_metric_freshness_seconds_count"} {
			require.Contains(t, text, name)
		}
	})
	t.Run("doctor", func(t *testing.T) { testDoctor(t, l) })
	t.Run("API server away", func(t *testing.T) {
		l.StopServer()
		status, text := r.page(t, "/readyz")
		require.Equal(t, http.StatusOK, status, text)
		l.StartServer(t)
		soon(t, "both pods again", r.log, func() bool {
			found, _ := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dcart")
			return len(found) == 2
		})
	})
	t.Run("cut", func(t *testing.T) {
		one.stop()
		two.stop()
		began := time.Now()
		soon(t, "error", r.log, func() bool {
			_, err := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dcart")
			return err != nil
		})
		// four flushes, and what one question takes
		require.Less(t, time.Since(began), 4*flushEvery+2*time.Second)
		_, err := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dcart")
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
	t.Run("end", func(t *testing.T) {
		require.Equal(t, cli.Done, r.end(), r.log)
		status, _ := r.page(t, "/readyz")
		require.Zero(t, status)
		require.Contains(t, r.log.String(), `"msg":"ended"`)
	})
}

// The list of metrics does not depend on what was pushed (prometheus-adapter
// issues 325, 77 and 229: metrics came and went).
func testDiscovery(t *testing.T, l *live) {
	for _, version := range []string{"v1beta1", "v1beta2"} {
		answer, err := l.raw(t, root+version)
		require.NoError(t, err)
		var list metav1.APIResourceList
		require.NoError(t, json.Unmarshal(answer, &list))
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
			require.Equal(t, "MetricValueList", r.Kind)
		}
		for _, m := range []string{"inbound_active_requests", "outbound_active_requests", "active_connections"} {
			require.True(t, slices.Contains(names, "pods/"+m), names)
		}
	}
	group, err := l.Client().Discovery().ServerGroups()
	require.NoError(t, err)
	for _, g := range group.Groups {
		if g.Name == "custom.metrics.k8s.io" {
			require.Equal(t, "v1beta2", g.PreferredVersion.Version)
		}
	}
}

func testVersions(t *testing.T, l *live) {
	for version, field := range map[string]string{"v1beta1": `"metricName":"inbound_active_requests"`, "v1beta2": `"metric":{"name":"inbound_active_requests"`} {
		answer, err := l.raw(t, root+version+"/namespaces/shop/pods/cart-1/inbound_active_requests")
		require.NoError(t, err)
		require.Contains(t, string(answer), field)
		require.Equal(t, 1, strings.Count(string(answer), `"value":"40"`))
	}
}

var aTime = regexp.MustCompile(`"timestamp":"[^"]*"`)

// testDocumentedAnswers gives kubectl the commands of the document, whose
// answers are those that it prints.
func testDocumentedAnswers(t *testing.T, l *live) {
	raw, err := os.ReadFile(document)
	require.NoError(t, err)
	const begin = "$ kubectl get --raw '"
	asked := 0
	for _, part := range strings.Split(string(raw), begin)[1:] {
		path, rest, ok := strings.Cut(part, "'\n")
		require.True(t, ok, part)
		want, _, _ := strings.Cut(rest, "\n")
		got := strings.TrimSpace(l.Kubectl(t, "get", "--raw", path))
		assert.Equal(t, aTime.ReplaceAllString(want, "T"), aTime.ReplaceAllString(got, "T"), path)
		asked++
	}
	require.Greater(t, asked, 4)
}

// Within a flush the same question has the same answer, and its timestamp is
// the proxy's.
func testOneFlush(t *testing.T, l *live, r *replica) {
	l.serving(t, "count-1", "count")
	counting := pushes(t, r.grpc, "count-1", -1) // as many requests as flushes
	defer counting.stop()
	seen, repeated := map[string]time.Time{}, false
	soon(t, "flush seen twice, and another one", r.log, func() bool {
		found, err := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dcount")
		if err != nil {
			return false
		}
		i := found["count-1"]
		before, again := seen[i.Value]
		require.True(t, !again || before.Equal(i.Timestamp), "%s at %v and %v", i.Value, before, i.Timestamp)
		seen[i.Value] = i.Timestamp
		repeated = repeated || again
		return repeated && len(seen) > 2
	})
	for value, at := range seen {
		flush, err := time.ParseDuration(value + "s")
		require.NoError(t, err)
		require.True(t, at.Equal(epoch.Add(flush)), "%s at %v", value, at)
	}
}

func testDoctor(t *testing.T, l *live) {
	doctor := func(more ...string) (int, string, string) {
		return activescale(t, append([]string{"doctor", "--kubeconfig", l.Kubeconfig, "--namespace", "shop"}, more...)...)
	}
	code, stdout, stderr := doctor("--selector", "app=cart")
	t.Logf("%s%s", stdout, stderr)
	require.Equal(t, cli.Failed, code)
	require.Regexp(t, `(?m)^pod cart-1: last flush \S+ ago, with requests$`, stdout)
	require.Regexp(t, `(?m)^pod idle-1: no stream: its annotations name no envoyMetricsService$`, stdout)
	require.Contains(t, stdout, "the configuration of the mesh is not known")
	require.Contains(t, stderr, "the load of 1 of 3 pods does not arrive")

	l.CreateNamespace(t, "istio-system")
	_, err := l.Client().CoreV1().ConfigMaps("istio-system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "istio"}, Data: map[string]string{"mesh": meshWith}}, metav1.CreateOptions{})
	require.NoError(t, err)
	code, stdout, stderr = doctor("--selector", "app=web")
	require.Equal(t, cli.Done, code, stderr)
	require.Regexp(t, `(?m)^pod web-1: last flush \S+ ago; no request has come since its proxy started but those to Istio's own listeners such as http.stats: served as 0$`, stdout)
	code, stdout, _ = doctor("--selector", "app=cart")
	require.Equal(t, cli.Failed, code)
	require.Contains(t, stdout, "pod idle-1: no stream, though it is configured")

	code, _, stderr = doctor("--selector", "app=none")
	require.Equal(t, cli.Failed, code)
	require.Contains(t, stderr, "no live pod in namespace shop")
}

// TestAnothersAPI: neither command takes over what is not its own, and nothing
// is written.
func TestAnothersAPI(t *testing.T) {
	l := newLive(t, nil)
	code, stdout, stderr := activescale(t, "preflight", "--kubeconfig", l.Kubeconfig)
	require.Equal(t, cli.Done, code, stderr)
	require.Equal(t, "v1beta1.custom.metrics.k8s.io: free\nv1beta2.custom.metrics.k8s.io: free\n", stdout)

	l.install(t)
	client := registrationclient.NewForConfigOrDie(l.Config).APIServices()
	theirs, err := client.Get(t.Context(), apiNames[0], metav1.GetOptions{})
	require.NoError(t, err)
	theirs.Spec.Service.Name = "prometheus-adapter"
	_, err = client.Update(t.Context(), theirs, metav1.UpdateOptions{})
	require.NoError(t, err)
	for _, args := range [][]string{{"preflight", "--service", "monitoring/activescale"}, {"serve", "--service", "monitoring/activescale", "--certificate-secret", "activescale-api"}} {
		code, _, stderr := activescale(t, append(args, "--kubeconfig", l.account)...)
		require.Equal(t, cli.Failed, code, stderr)
		require.Contains(t, stderr, "v1beta1.custom.metrics.k8s.io points to monitoring/prometheus-adapter, expected monitoring/activescale")
		require.Contains(t, stderr, "uninstall that one first")
	}
	theirs, err = client.Get(t.Context(), apiNames[0], metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, theirs.Spec.CABundle)
	secret, err := l.Client().CoreV1().Secrets("monitoring").Get(t.Context(), "activescale-api", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, secret.Data, "not even a certificate")
}

// TestUninstall: a server that is gone keeps namespaces from being deleted
// (kubernetes issues 75788, 83332 and 60807) until the release is uninstalled,
// which removes the APIServices.
func TestUninstall(t *testing.T) {
	l := newLive(t, nil)
	l.install(t)
	r := l.start(t)
	r.waitReady(t)
	l.Controllers(t, "namespace-controller")
	l.CreateNamespace(t, "before")
	l.CreateNamespace(t, "after")
	namespaces := l.Client().CoreV1().Namespaces()
	gone := func(name string) bool {
		_, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	require.NoError(t, namespaces.Delete(t.Context(), "before", metav1.DeleteOptions{}))
	soon(t, "end of a namespace while all is well", r.log, func() bool { return gone("before") })

	require.Equal(t, cli.Done, r.end(), r.log)
	client := registrationclient.NewForConfigOrDie(l.Config).APIServices()
	soon(t, "API server that has noticed", r.log, func() bool {
		all, err := readAPIs(t.Context(), client)
		return err == nil && !all[0].available && !all[1].available
	})
	require.NoError(t, namespaces.Delete(t.Context(), "after", metav1.DeleteOptions{}))
	soon(t, "namespace that waits for the API", r.log, func() bool {
		ns, err := namespaces.Get(t.Context(), "after", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue
		})
	})
	require.NoError(t, l.release.Uninstall(t.Context(), l.dynamic))
	for _, name := range apiNames {
		_, err := client.Get(t.Context(), name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
	soon(t, "end of the namespace", r.log, func() bool { return gone("after") })
}
