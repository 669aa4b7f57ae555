package provider

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"

	"heartbed/activescale/store"
)

// shop is a cluster with two busy pods, an idle one, and others that do not
// count.
func shop(t testing.TB) *cluster {
	c := newCluster()
	c.pod(t, "web-a")
	c.push(t, "web-a", map[string]float64{store.InboundActiveRequests: 12, store.OutboundActiveRequests: 2, store.ActiveConnections: 3, store.InboundMeanRequests: 1.23456})
	c.pod(t, "web-b", label("tier", "gold"))
	c.push(t, "web-b", map[string]float64{store.InboundActiveRequests: 0.25})
	c.pod(t, "web-idle")
	c.push(t, "web-idle", nil)
	c.pod(t, "web-silent")
	c.pod(t, "web-pending", phase(corev1.PodPending))
	for name, change := range map[string]func(*corev1.Pod){
		"web-ends": terminating, "web-done": phase(corev1.PodSucceeded), "web-failed": phase(corev1.PodFailed), "db-0": label("app", "db"),
	} {
		c.pod(t, name, change)
		c.push(t, name, active(1000))
	}
	return c
}

const webByVersion2 = `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta2","metadata":{},"items":[` +
	`{"describedObject":{"kind":"Pod","namespace":"shop","name":"web-a","apiVersion":"v1"},"metric":{"name":"inbound_active_requests","selector":null},"timestamp":"2031-02-03T04:05:06Z","value":"12"},` +
	`{"describedObject":{"kind":"Pod","namespace":"shop","name":"web-b","apiVersion":"v1"},"metric":{"name":"inbound_active_requests","selector":null},"timestamp":"2031-02-03T04:05:06Z","value":"250m"},` +
	`{"describedObject":{"kind":"Pod","namespace":"shop","name":"web-idle","apiVersion":"v1"},"metric":{"name":"inbound_active_requests","selector":null},"timestamp":"2031-02-03T04:05:06Z","value":"0"}]}`

const goldByVersion1 = `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta1","metadata":{},"items":[` +
	`{"describedObject":{"kind":"Pod","namespace":"shop","name":"web-b","apiVersion":"v1"},"metricName":"inbound_active_requests","timestamp":"2031-02-03T04:05:06Z","value":"250m","selector":null}]}`

// What anyone sees with kubectl get --raw.
func TestOverHTTP(t *testing.T) {
	o := shop(t).options()
	o.Mean = true
	address := serve(t, New(o))
	web := "v1beta2/namespaces/shop/pods/*/inbound_active_requests?labelSelector=app%3Dweb"
	for path, want := range map[string]string{
		web:                           webByVersion2,
		web + "&metricLabelSelector=": webByVersion2,
		"v1beta1/namespaces/shop/pods/*/inbound_active_requests?labelSelector=app%3Dweb,tier+in+(gold,silver)": goldByVersion1,
		"v1beta1/namespaces/shop/pods/web-b/inbound_active_requests":                                           goldByVersion1, // one pod is a list of one
		"v1beta1/namespaces/shop/pods/web-b/inbound_active_requests?metricLabelSelector=code!%3D500,!path":     strings.Replace(goldByVersion1, `"selector":null`, `"selector":{"matchExpressions":[{"key":"code","operator":"NotIn","values":["500"]},{"key":"path","operator":"DoesNotExist"}]}`, 1),
	} {
		code, body := fetch(t, address, path)
		require.Equal(t, http.StatusOK, code, body)
		require.JSONEq(t, want, body, path)
	}
	for path, want := range map[string]string{
		"v1beta2/namespaces/shop/pods/web-a/outbound_active_requests":              `"value":"2"`,
		"v1beta2/namespaces/shop/pods/web-a/active_connections":                    `"value":"3"`,
		"v1beta2/namespaces/shop/pods/web-a/inbound_mean_requests":                 `"value":"1235m"`,
		"v1beta2/namespaces/shop/pods/web-a/capacity_weighted_active_requests":     `"value":"12"`,
		"v1beta2/namespaces/shop/pods/web-idle/active_connections":                 `"value":"0"`,
		"v1beta2/namespaces/shop/pods/*/inbound_mean_requests?labelSelector=app":   `"name":"web-a"`,
		"v1beta2/namespaces/shop/pods/*/capacity_weighted_active_requests":         `"metric":{"name":"capacity_weighted_active_requests"`,
		"v1beta2/namespaces/shop/pods/*/outbound_active_requests?labelSelector=":   `"name":"db-0"`,
		"v1beta2/namespaces/shop/pods/*/active_connections?labelSelector=app!%3Dx": `"name":"web-idle"`,
	} {
		code, body := fetch(t, address, path)
		require.Equal(t, http.StatusOK, code, body)
		require.Contains(t, body, want, path)
		require.NotContains(t, body, "windowSeconds", "a gauge has no window")
	}
}

// A pod, metric or selection that nothing is known of is a typed 404, which the
// HPA takes as an error and keeps its replicas.
func TestNotFoundOverHTTP(t *testing.T) {
	address := serve(t, New(shop(t).options()))
	for path, want := range map[string]string{
		"v1beta2/namespaces/shop/pods/web-silent/inbound_active_requests":                        "the server could not find the metric inbound_active_requests for pods web-silent: 1 running pods match",
		"v1beta2/namespaces/shop/pods/web-pending/inbound_active_requests":                       "for pods web-pending: 0 running pods match",
		"v1beta2/namespaces/shop/pods/web-ends/inbound_active_requests":                          "for pods web-ends: 0 running pods match",
		"v1beta2/namespaces/shop/pods/web-failed/inbound_active_requests":                        "for pods web-failed: 0 running pods match",
		"v1beta2/namespaces/shop/pods/nobody/inbound_active_requests":                            "for pods nobody: 0 running pods match",
		"v1beta2/namespaces/empty/pods/*/inbound_active_requests?labelSelector=app%3Dweb":        "for pods * with selector app=web: 0 running pods match",
		"v1beta2/namespaces/shop/pods/*/inbound_active_requests?labelSelector=app%3Dx":           "for pods * with selector app=x: 0 running pods match",
		"v1beta2/namespaces/shop/pods/web-a/inbound_active_requests?metricLabelSelector=code%3D": `its series have no labels to match "code="`,
		"v1beta2/namespaces/shop/pods/*/inbound_active_requests?metricLabelSelector=code%3D200":  `its series have no labels to match "code=200"`,
		"v1beta2/namespaces/shop/pods/*/inbound_mean_requests":                                   "only pods have metrics here, and these: [active_connections capacity_weighted_active_requests inbound_active_requests outbound_active_requests]",
		"v1beta2/namespaces/shop/pods/*/http_requests":                                           "could not find the metric http_requests for pods: only pods",
		"v1beta2/namespaces/shop/services/web/inbound_active_requests":                           "could not find the metric inbound_active_requests for services: only pods",
		"v1beta2/namespaces/shop/deployments.apps/web/inbound_active_requests":                   "for deployments.apps: only pods",
		"v1beta2/namespaces/shop/metrics/inbound_active_requests":                                "for namespaces: only pods",
		"v1beta2/nodes/*/inbound_active_requests":                                                "for nodes: only pods",
		"v1beta2/pods/web-a/inbound_active_requests":                                             "for pods: only pods",
	} {
		code, body := fetch(t, address, path)
		require.Equal(t, http.StatusNotFound, code, "%s: %s", path, body)
		reason, message := failure(t, code, body)
		require.Equal(t, metav1.StatusReasonNotFound, reason, path)
		require.Contains(t, message, want, path)
	}
	code, body := fetch(t, address, "v1beta2/namespaces/shop/pods/*/inbound_active_requests?labelSelector=%3D")
	require.Equal(t, http.StatusBadRequest, code, body)
}

// anyflow/activescale stamped the time of the query and so hid how old a value
// was; two scrapes of one flush must be the same.
func TestTwoScrapesOfAFlushAreEqual(t *testing.T) {
	c := shop(t)
	address := serve(t, New(c.options()))
	path := "v1beta2/namespaces/shop/pods/*/inbound_active_requests"
	_, first := fetch(t, address, path)
	for range 3 {
		_, again := fetch(t, address, path)
		require.Equal(t, first, again)
	}
	c.push(t, "web-a", active(13))
	_, next := fetch(t, address, path)
	require.Equal(t, strings.Replace(first, `"12"`, `"13"`, 1), next)
}

// prometheus-adapter issues 325, 77, 229: metrics faded in and out of discovery.
func TestListIsStatic(t *testing.T) {
	c := newCluster()
	address := serve(t, New(c.options()))
	for _, version := range []string{"v1beta1", "v1beta2"} {
		code, before := fetch(t, address, version)
		require.Equal(t, http.StatusOK, code)
		for _, name := range []string{"inbound_active_requests", "outbound_active_requests", "active_connections", "capacity_weighted_active_requests"} {
			require.Contains(t, before, `"name":"pods/`+name+`"`)
		}
		require.NotContains(t, before, store.InboundMeanRequests)
		c.pod(t, "web-a")
		c.push(t, "web-a", map[string]float64{"else": 1})
		_, after := fetch(t, address, version)
		require.Equal(t, before, after)
	}
}

// The store cannot know: an error, never an empty list or a zero (KEDA issues
// 3064, 3065), and never a part either.
func TestStoreDownOverHTTP(t *testing.T) {
	c := shop(t)
	down, err := store.NewRedis(store.RedisOptions{Address: "127.0.0.1:1", TTL: ttl})
	require.NoError(t, err)
	shared := store.NewShared(down)
	defer func() { require.NoError(t, shared.Close()) }()
	require.NoError(t, shared.Put(t.Context(), store.Pod{Namespace: "shop", Name: "web-a"}, store.Sample{Epoch: 1, Flush: 1, Values: active(12)}))
	o := c.options()
	o.Store, o.Registerer = shared, prometheus.NewRegistry()
	p := New(o)
	address := serve(t, p)
	code, body := fetch(t, address, "v1beta2/namespaces/shop/pods/*/inbound_active_requests?labelSelector=app%3Dweb")
	require.Equal(t, http.StatusServiceUnavailable, code, body)
	reason, message := failure(t, code, body)
	require.Equal(t, metav1.StatusReasonServiceUnavailable, reason)
	require.Contains(t, message, "1 of 4 pods are known to this replica")
	require.Equal(t, 1.0, testutil.ToFloat64(p.m.queries.WithLabelValues(store.InboundActiveRequests, "unavailable")))

	code, body = fetch(t, address, "v1beta2/namespaces/shop/pods/web-a/inbound_active_requests")
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"value":"12"`)
}

func TestNotSyncedIsUnavailable(t *testing.T) {
	o := shop(t).options()
	synced := false
	o.Synced = func() bool { return synced }
	address := serve(t, New(o))
	path := "v1beta2/namespaces/shop/pods/web-a/inbound_active_requests"
	code, body := fetch(t, address, path)
	require.Equal(t, http.StatusServiceUnavailable, code, body)
	synced = true
	code, _ = fetch(t, address, path)
	require.Equal(t, http.StatusOK, code)
}

// The HPA's own client, with the version that it prefers by discovery and with
// either.
func TestClientOfTheHPA(t *testing.T) {
	config := &rest.Config{Host: serve(t, New(shop(t).options())), QPS: -1}
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	found, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	require.NoError(t, err)
	clients := []customclient.CustomMetricsClient{customclient.NewForConfig(config, mapper, customclient.NewAvailableAPIsGetter(found.WithLegacy()))}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		c, err := customclient.NewForVersionForConfig(config, mapper, schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: version})
		require.NoError(t, err)
		clients = append(clients, c)
	}
	web, err := labels.Parse("app=web")
	require.NoError(t, err)
	pod := schema.GroupKind{Kind: "Pod"}
	for _, c := range clients {
		list, err := c.NamespacedMetrics("shop").GetForObjects(pod, web, store.InboundActiveRequests, labels.Everything())
		require.NoError(t, err)
		got := map[string]int64{}
		for _, v := range list.Items {
			got[v.DescribedObject.Name] = v.Value.MilliValue()
			require.Equal(t, at.Unix(), v.Timestamp.Unix())
			require.Nil(t, v.WindowSeconds)
		}
		require.Equal(t, map[string]int64{"web-a": 12000, "web-b": 250, "web-idle": 0}, got)
		one, err := c.NamespacedMetrics("shop").GetForObject(pod, "web-b", store.InboundActiveRequests, labels.Everything())
		require.NoError(t, err)
		require.Equal(t, int64(250), one.Value.MilliValue())
	}
}
