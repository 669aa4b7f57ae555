package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"heartbed/heart/istio/istiotest"
	"heartbed/internal/chart"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads/push"
)

// flushEvery is how often pods push in these tests: a sample lives four times as
// long, which a busy machine may not use up.
const flushEvery = time.Second

// live is an API server on which the chart is installed, and nothing runs.
type live struct {
	*istiotest.Cluster
	dynamic  dynamic.Interface
	release  chart.Release
	account  string // kubeconfig with the rights of the chart's service account
	outside  netip.Addr
	replicas int
}

func newLive(t *testing.T, values map[string]any) *live {
	t.Helper()
	testbedtest.Require(t, "kind", istiotest.Check())
	l := &live{Cluster: istiotest.Start(t), outside: istiotest.Outside(t), release: release(t, values)}
	l.dynamic = dynamic.NewForConfigOrDie(l.Config)
	l.CreateNamespace(t, "monitoring")
	l.CreateNamespace(t, "shop")
	config, err := clientcmd.LoadFromFile(l.Kubeconfig)
	require.NoError(t, err)
	config.AuthInfos["admin"].Impersonate = "system:serviceaccount:monitoring:activescale"
	l.account = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, l.account))
	return l
}

func (l *live) install(t *testing.T) {
	t.Helper()
	require.NoError(t, l.release.Install(t.Context(), l.dynamic))
}

// replica is a running activescale.
type replica struct {
	name       string
	grpc, http string // addresses
	api        int
	log        *locked
	end        func() int // asks it to end, and gives its exit code
	l          *live
}

// start runs activescale with the flags of the chart and the rights of its
// account, as a replica behind its Service.
func (l *live) start(t *testing.T, more ...string) *replica {
	t.Helper()
	l.replicas++
	r := &replica{name: fmt.Sprintf("activescale-%d", l.replicas), grpc: l.free(t), http: l.free(t), log: &locked{}, l: l}
	_, port, err := net.SplitHostPort(l.free(t))
	require.NoError(t, err)
	r.api, err = strconv.Atoi(port)
	require.NoError(t, err)
	args := append(arguments(t, l.release), "--kubeconfig", l.account, "--bind-address", l.outside.String(), "--secure-port", port,
		"--listen", r.grpc, "--http", r.http, "--flush", flushEvery.String(), "--drain", "100ms")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() { done <- Run(ctx, append(args, more...), r.log, r.log) }()
	r.end = sync.OnceValue(func() int { cancel(); return <-done })
	t.Cleanup(func() { r.end() })
	l.expose(t, r)
	return r
}

// free gives an address that nobody listens at, with a port that the system does
// not give to connections: the API server opens some.
func (l *live) free(t *testing.T) string {
	t.Helper()
	for range 100 {
		at := net.JoinHostPort(l.outside.String(), strconv.Itoa(20000+rand.IntN(10000)))
		if found, err := net.Listen("tcp", at); err == nil {
			require.NoError(t, found.Close())
			return at
		}
	}
	t.Fatal("no free port")
	return ""
}

// expose writes what a kubelet and the controllers would: the replica's pod and
// its endpoint.
func (l *live) expose(t *testing.T, r *replica) {
	t.Helper()
	_, text, err := net.SplitHostPort(r.http)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	l.createPod(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: r.name, Labels: map[string]string{"app.kubernetes.io/name": "activescale", "app.kubernetes.io/instance": "activescale"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "activescale", Image: "none", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: int32(port)}},
		}}},
	})
	name, api, ready := "https", int32(r.api), true
	_, err = l.Client().DiscoveryV1().EndpointSlices("monitoring").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: r.name, Labels: map[string]string{discoveryv1.LabelServiceName: "activescale"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &api}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{l.outside.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// hide takes the replica from behind the Service, as happens when it is not
// ready.
func (r *replica) hide(t *testing.T) {
	t.Helper()
	require.NoError(t, r.l.Client().DiscoveryV1().EndpointSlices("monitoring").Delete(t.Context(), r.name, metav1.DeleteOptions{}))
	now := int64(0)
	require.NoError(t, r.l.Client().CoreV1().Pods("monitoring").Delete(t.Context(), r.name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// createPod makes a pod that runs, says its status.
func (l *live) createPod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	pods := l.Client().CoreV1().Pods(p.Namespace)
	made, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
	started := metav1.NewTime(time.Now().Add(-time.Hour))
	made.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &started, PodIP: l.outside.String(), PodIPs: []corev1.PodIP{{IP: l.outside.String()}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	_, err = pods.UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// serving makes a pod of shop that serves, with a sidecar.
func (l *live) serving(t *testing.T, name, app string) {
	t.Helper()
	l.createPod(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}, Annotations: map[string]string{injected: "{}"}},
		Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "cart", Containers: []corev1.Container{{Name: app, Image: "none"}, {Name: "istio-proxy", Image: "none"}}},
	})
}

// pusher pushes for a pod as its sidecar would.
type pusher struct {
	active  atomic.Int64
	flushes atomic.Int64
	stop    func()
}

// epoch is when the pushers' clocks stand at their flush 0; a flush takes a
// second of it. What is served has the sender's time.
var epoch = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// pushes starts a pusher. active < 0: as many requests as flushes.
func pushes(t *testing.T, target, pod string, active int64) *pusher {
	t.Helper()
	p := &pusher{}
	p.active.Store(active)
	p.stop = run(t, push.Options{
		Target: target, Namespace: "shop", Pod: pod, Every: flushEvery, First: 10 * time.Millisecond, Noise: 10,
		Now: func() time.Time { return epoch.Add(time.Duration(p.flushes.Load()) * time.Second) },
		Read: func() push.Values {
			n := p.flushes.Add(1)
			if a := p.active.Load(); a >= 0 {
				n = a
			}
			return push.Values{Inbound: push.Requests{Active: n, Begun: uint64(n)}}
		},
	})
	return p
}

// pushWith pushes some active requests by the options.
func pushWith(t *testing.T, o push.Options, active int64) {
	t.Helper()
	o.Read = func() push.Values { return push.Values{Inbound: push.Requests{Active: active, Begun: uint64(active)}} }
	run(t, o)
}

// run pushes until the end of the test, or until stop.
func run(t *testing.T, o push.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { assert.NoError(t, push.Run(ctx, o)) })
	stop = sync.OnceFunc(func() { cancel(); ended.Wait() })
	t.Cleanup(stop)
	return stop
}

// locked is a buffer that may be read while it is written.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// soon waits until something holds, two minutes at most.
func soon(t *testing.T, what string, log fmt.Stringer, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within two minutes:\n%s", what, log)
		}
	}
}

const root = "/apis/custom.metrics.k8s.io/"

// raw asks the API server as "kubectl get --raw" does.
func (l *live) raw(t *testing.T, path string) ([]byte, error) {
	t.Helper()
	return l.Client().CoreV1().RESTClient().Get().RequestURI(path).DoRaw(t.Context())
}

// values asks for a metric of pods of shop, by pod; nil with an error.
func (l *live) values(t *testing.T, metric, query string) (map[string]item, error) {
	t.Helper()
	answer, err := l.raw(t, root+"v1beta2/namespaces/shop/pods/*/"+metric+query)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []item }
	require.NoError(t, json.Unmarshal(answer, &list))
	found := map[string]item{}
	for _, i := range list.Items {
		found[i.DescribedObject.Name] = i
	}
	return found, nil
}

// item is one of a list of v1beta2.
type item struct {
	DescribedObject corev1.ObjectReference
	Value           string
	Timestamp       time.Time
}

// page of a replica's own HTTP server; 0 while nobody serves.
func (r *replica) page(t *testing.T, path string) (status int, text string) {
	t.Helper()
	response, err := http.Get("http://" + r.http + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	require.NoError(t, err)
	return response.StatusCode, body.String()
}

// waitReady waits until a replica serves, and the API server has found it.
func (r *replica) waitReady(t *testing.T) {
	t.Helper()
	soon(t, "readiness", r.log, func() bool { status, _ := r.page(t, "/readyz"); return status == http.StatusOK })
	soon(t, "API", r.log, func() bool { _, err := r.l.raw(t, root+"v1beta2"); return err == nil })
}
