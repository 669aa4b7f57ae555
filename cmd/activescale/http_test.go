package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"heartbed/activescale/sink"
	"heartbed/activescale/store"
)

// parts is a server of which nothing runs, with the pods that are given.
func parts(t *testing.T, all ...*corev1.Pod) *server {
	t.Helper()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range all {
		slimmed, err := slim(p)
		require.NoError(t, err)
		require.NoError(t, index.Add(slimmed))
	}
	s := &server{
		settings: settings{flush: 5 * time.Second}, registry: prometheus.NewRegistry(), store: store.NewLocal(20 * time.Second),
		pods: &pods{lister: corelisters.NewPodLister(index), synced: func() bool { return true }},
	}
	s.registration = newRegistration(aggregator.NewClientset().ApiregistrationV1().APIServices(), ours, nil, slog.New(slog.DiscardHandler))
	var err error
	s.sink, err = sink.New(sink.Options{Store: s.store})
	require.NoError(t, err)
	s.coverage = newCoverage(s.pods, s.store, s.ttl(), s.registry)
	return s
}

func get(s *server, path string) (int, string) {
	answer := httptest.NewRecorder()
	s.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	return answer.Code, answer.Body.String()
}

func TestReadiness(t *testing.T) {
	s := parts(t)
	require503 := func(says string) {
		t.Helper()
		status, text := get(s, "/readyz")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, says+"\n", text)
	}
	require503("the API does not serve yet")
	s.serving.Store(true)
	status, text := get(s, "/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "ok\ndegraded: the API's registration has not been read yet\ndegraded: no proxy pushes to this replica\n", text)

	s.pods.synced = func() bool { return false }
	require503("the pods of the cluster are not known yet")
	s.ending.Store(true)
	require503("ending")
	status, text = get(s, "/healthz")
	require.Equal(t, http.StatusOK, status, "a replica that ends is not killed for it")
	require.Equal(t, "ok\n", text)
}

// A Redis that is down takes no replica out.
func TestReadyWithoutRedis(t *testing.T) {
	s := parts(t)
	s.serving.Store(true)
	remote, err := store.NewRedis(store.RedisOptions{Address: "127.0.0.1:1", TTL: s.ttl()})
	require.NoError(t, err)
	s.shared = store.NewShared(remote)
	defer func() { require.NoError(t, s.shared.Close()) }()
	_, err = s.shared.Get(t.Context(), []store.Pod{{Namespace: "shop", Name: "cart-1"}})
	require.Error(t, err)
	status, text := get(s, "/readyz")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "degraded: redis: samples of other replicas cannot be read")
}

func TestStreamsPage(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	page := newStreamsPage([]sink.Stream{
		{Pod: store.Pod{Namespace: "shop", Name: "b"}, Peer: "p", Since: now.Add(-time.Minute), Flushes: 3, Last: now.Add(-2 * time.Second), Requests: true},
		{Pod: store.Pod{Namespace: "shop", Name: "a"}, Since: now.Add(-time.Second), Last: time.Unix(0, 0)},
	}, 20*time.Second, now)
	raw, err := json.Marshal(page)
	require.NoError(t, err)
	require.JSONEq(t, `{"freshSeconds":20,"streams":[
		{"pod":"shop/a","peer":"","ageSeconds":1,"flushes":0,"flushAgeSeconds":1,"requests":false,"ownOnly":false,"bad":false},
		{"pod":"shop/b","peer":"p","ageSeconds":60,"flushes":3,"flushAgeSeconds":2,"requests":true,"ownOnly":false,"bad":false}]}`, string(raw))
	status, text := get(parts(t), "/streams")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "{\"freshSeconds\":20,\"streams\":[]}\n", text)

	told := heard{}
	told.add(page)
	page.Streams[1].FlushAge, page.Streams[1].Requests = 9, false // an older stream of another replica
	told.add(page)
	require.True(t, told["shop/b"].Requests)
	require.EqualValues(t, 20, told["shop/b"].freshFor)
}

// Pods with a sidecar that do not push are told of, once they had the time to.
func TestCoverage(t *testing.T) {
	now := time.Now()
	pod := func(name string, age time.Duration, change func(*corev1.Pod)) *corev1.Pod {
		started := metav1.NewTime(now.Add(-age))
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{injected: `{"initContainers":["istio-init"]}`}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	s := parts(t,
		pod("heard", time.Hour, nil), pod("silent", time.Hour, nil), pod("new", time.Second, nil),
		pod("bare", time.Hour, func(p *corev1.Pod) { p.Annotations = nil }),
		pod("done", time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("leaving", time.Hour, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }),
	)
	require.NoError(t, s.store.Put(t.Context(), store.Pod{Namespace: "shop", Name: "heard"}, store.Sample{Epoch: 1, Flush: 1}))
	s.coverage.look(t.Context(), now)
	require.Equal(t, []string{"1 of 2 pods with a sidecar do not push, such as shop/silent: see activescale doctor"}, s.coverage.degraded())
	_, text := get(s, "/metrics")
	require.Contains(t, text, "activescale_pods_silent 1\n")
	require.Contains(t, text, "activescale_pods_sidecar 2\n")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.coverage.keep(ctx) // returns
}

func TestVerify(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1"}, Spec: corev1.PodSpec{ServiceAccountName: "cart"}}
	s := parts(t, p)
	good, pod := sink.SPIFFE{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "cart"}, store.Pod{Namespace: "shop", Name: "cart-1"}
	require.NoError(t, s.verify(t.Context(), good, pod))
	other := good
	other.ServiceAccount = "web"
	require.ErrorContains(t, s.verify(t.Context(), other, pod), `spiffe://cluster.local/ns/shop/sa/web may not report for pod shop/cart-1, whose service account is "cart"`)
	require.ErrorContains(t, s.verify(t.Context(), good, store.Pod{Namespace: "shop", Name: "none"}), "there is no pod shop/none")
}

// What informers keep of a pod is what is used.
func TestSlim(t *testing.T) {
	kept, err := slim(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{injected: "{...}", "activescale.heartbed.dev/cost": "2", "x": "y"}},
		Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "b", Containers: []corev1.Container{{Name: "c"}}},
	})
	require.NoError(t, err)
	p := kept.(*corev1.Pod)
	require.Equal(t, map[string]string{injected: "true", "activescale.heartbed.dev/cost": "2"}, p.Annotations)
	require.Equal(t, corev1.PodSpec{NodeName: "n1", ServiceAccountName: "b"}, p.Spec)
	tombstone := cache.DeletedFinalStateUnknown{Key: "a"}
	same, err := slim(tombstone)
	require.NoError(t, err)
	require.Equal(t, tombstone, same)
}

func TestCostOfNodes(t *testing.T) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, cost := range map[string]string{"slow": "2.5", "odd": "much", "plain": ""} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if cost != "" {
			n.Annotations = map[string]string{"activescale.heartbed.dev/cost": cost}
		}
		slimmed, err := slim(n)
		require.NoError(t, err)
		require.NoError(t, index.Add(slimmed))
	}
	p := &pods{nodes: corelisters.NewNodeLister(index)}
	for node, want := range map[string]struct {
		cost float64
		told bool
	}{"slow": {2.5, true}, "odd": {0, true}, "plain": {0, false}, "none": {0, false}} {
		cost, told := p.cost(&corev1.Pod{Spec: corev1.PodSpec{NodeName: node}})
		require.Equal(t, want.cost, cost, node)
		require.Equal(t, want.told, told, node)
	}
}
