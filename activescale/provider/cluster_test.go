package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericapiserver "k8s.io/apiserver/pkg/server"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/apiserver"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"heartbed/activescale/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ttl is four flushes of 5 s.
const ttl = 20 * time.Second

// cluster is what an informer knows, and what pods pushed.
type cluster struct {
	store   store.Store
	pods    cache.Indexer
	flushes uint64
}

func newCluster() *cluster {
	return &cluster{
		store: store.NewLocal(ttl),
		pods:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
}

func (c *cluster) options() Options {
	return Options{Store: c.store, Pods: corelisters.NewPodLister(c.pods)}
}

// pod adds or replaces a running pod of the namespace shop and the app web.
func (c *cluster) pod(t testing.TB, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(pod)
	}
	require.NoError(t, c.pods.Update(pod))
	return pod
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func label(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func annotated(cost string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{CostAnnotation: cost} }
}

// at is the clock of the pods: it stands apart from this machine's.
var at = time.Date(2031, 2, 3, 4, 5, 6, 789_000_000, time.UTC)

// push puts a flush of a pod of the namespace shop.
func (c *cluster) push(t testing.TB, name string, values map[string]float64) {
	c.flushes++
	require.NoError(t, c.store.Put(t.Context(), store.Pod{Namespace: "shop", Name: name}, store.Sample{Epoch: 1, Flush: c.flushes, At: at, Values: values}))
}

func active(n float64) map[string]float64 {
	return map[string]float64{store.InboundActiveRequests: n}
}

// ask queries the pods of the app web for a metric, as an HPA does, and gives
// the values by pod in thousandths.
func ask(t testing.TB, p *Provider, metric string) (map[string]int64, error) {
	return askFor(t, p, metric, "app=web")
}

func askFor(t testing.TB, p *Provider, metric, selector string) (map[string]int64, error) {
	parsed, err := labels.Parse(selector)
	require.NoError(t, err)
	list, err := p.GetMetricBySelector(t.Context(), "shop", parsed, info(metric), labels.Everything())
	if err != nil {
		require.Nil(t, list)
		return nil, err
	}
	milli := map[string]int64{}
	for _, v := range list.Items {
		require.Equal(t, metric, v.Metric.Name)
		milli[v.DescribedObject.Name] = v.Value.MilliValue()
	}
	return milli, nil
}

func info(metric string) provider.CustomMetricInfo {
	return provider.CustomMetricInfo{GroupResource: pods, Namespaced: true, Metric: metric}
}

// average is what the HPA computes for a target of type Pods: the mean over the
// pods that have a value, in thousandths.
func average(milli map[string]int64) int64 {
	sum := int64(0)
	for _, v := range milli {
		sum += v
	}
	return sum / int64(len(milli))
}

// serve mounts a provider behind the library's API server, all but
// authentication, and gives its address.
func serve(t testing.TB, p provider.CustomMetricsProvider) string {
	config := genericapiserver.NewConfig(apiserver.Codecs)
	config.ExternalAddress = "127.0.0.1:443"
	config.LoopbackClientConfig = &rest.Config{}
	config.SkipOpenAPIInstallation = true
	complete := (&apiserver.Config{GenericConfig: config}).Complete(nil)
	s, err := complete.New("activescale", p, nil)
	require.NoError(t, err)
	server := httptest.NewServer(s.GenericAPIServer.Handler)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
		s.GenericAPIServer.Destroy()
	})
	return server.URL
}

const group = "/apis/custom.metrics.k8s.io/"

// fetch gives status and body of a path below the group.
func fetch(t testing.TB, address, path string) (int, string) {
	response, err := http.Get(address + group + path)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// failure checks that the body is a Status of Kubernetes, and gives its reason
// and message.
func failure(t testing.TB, code int, body string) (reason metav1.StatusReason, message string) {
	var status metav1.Status
	require.NoError(t, json.Unmarshal([]byte(body), &status), body)
	require.Equal(t, []string{"Status", "v1", metav1.StatusFailure, fmt.Sprint(code)},
		[]string{status.Kind, status.APIVersion, status.Status, fmt.Sprint(status.Code)})
	return status.Reason, status.Message
}
