package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"heartbed/cmd/internal/cli"
	"heartbed/heart/istio/istiotest"
	"heartbed/testbed/testbedtest"
)

// exporter serves counters of pods that nothing runs: each answers 100
// requests a second; those on n2 take twice the CPU time.
func exporter(t *testing.T) string {
	began := time.Now()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		age := time.Since(began).Seconds()
		for pod, cpu := range map[string]float64{"d-1": 0.001, "e-1": 0.001, "e-2": 0.002, "e-3": 0.001} {
			fmt.Fprintf(w, "test_cpu_seconds_total{replica=%q} %f\n", pod, age*100*cpu)
			fmt.Fprintf(w, "test_requests_total{replica=%q,caller=%q} %f\n", pod, map[byte]string{'d': "user", 'e': "d"}[pod[0]], age*100)
		}
		for _, pair := range [][2]string{{"n1", "n2"}, {"n2", "n1"}} {
			fmt.Fprintf(w, "test_rtt_seconds{source=%q,target=%q} 0.001\n", pair[0], pair[1])
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// startPrometheus runs a real one, which scrapes the target. stop ends it early.
func startPrometheus(t *testing.T, target string) (address string, stop func()) {
	program, err := exec.LookPath("prometheus")
	require.NoError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte("global: {scrape_interval: 250ms, scrape_timeout: 250ms}\nscrape_configs: [{job_name: pods, static_configs: [{targets: ["+target+"]}]}]\n"), 0o600))
	address = "http://" + free(t)
	cmd := exec.Command(program, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", strings.TrimPrefix(address, "http://"), "--log.level=error")
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	t.Cleanup(stop)
	return address, stop
}

// free gives a port that nobody listens on.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// live is a namespace with pods of d and e, and the chart installed.
type live struct {
	*istiotest.Cluster
	client dynamic.Interface
	args   []string // of heart, as the chart's service account
	listen string
	stop   func() // ends Prometheus
}

func newLive(t *testing.T) live {
	_, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skipf("no prometheus in PATH: %v", err)
	}
	c := istiotest.Start(t)
	c.InstallIstio(t)
	c.CreateNamespace(t, "shop")
	for _, name := range []string{"n1", "n2"} {
		_, err := c.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	c.CreateService(t, "shop", "e", 7000)
	for i, p := range []istiotest.Pod{
		{Name: "d-1", Node: "n1"}, {Name: "e-1", Node: "n1", Service: "e"}, {Name: "e-2", Node: "n2", Service: "e"}, {Name: "e-3", Node: "n1", Service: "e"},
	} {
		p.Namespace, p.Labels = "shop", map[string]string{"app": p.Name[:1]}
		p.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7000)
		c.CreatePod(t, p)
	}
	l := live{Cluster: c, client: dynamic.NewForConfigOrDie(c.Config), listen: free(t)}
	var address string
	address, l.stop = startPrometheus(t, exporter(t))
	config := fmt.Sprintf(`calls: [{from: d, to: e}]
period: 1s
maxAge: 5s
listen: %s
prometheus:
  address: %s
  window: 3s
  cpu: {counter: test_cpu_seconds_total, labels: {replica: replica}}
  requests: {counter: test_requests_total, labels: {replica: replica, callerComponent: caller}}
  rtt: {promql: test_rtt_seconds, labels: {source: source, target: target}}
`, l.listen, address)
	l.install(t, chart(t, "heart", "shop", map[string]any{"config": config}))
	l.args = []string{"--kubeconfig", l.asServiceAccount(t), "--config", write(t, "heart.yaml", "namespace: shop\n"+config)}
	return l
}

// asServiceAccount is a kubeconfig with the rights of the chart's account.
func (l live) asServiceAccount(t *testing.T) string {
	config, err := clientcmd.LoadFromFile(l.Kubeconfig)
	require.NoError(t, err)
	config.AuthInfos["admin"].Impersonate = "system:serviceaccount:shop:heart"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

// waitSteps makes one dry run after another until Prometheus has seen enough.
func (l live) waitSteps(t *testing.T) string {
	var code int
	var stdout, stderr string
	require.Eventually(t, func() bool {
		code, stdout, stderr = run(t, append(l.args, "--once", "--dry-run", "--explain")...)
		return code == cli.Done
	}, 30*time.Second, 500*time.Millisecond, "%s", &stderr)
	return stdout
}

// written lists what heart may have left in the namespace.
func (l live) written(t *testing.T) []string {
	var names []string
	for _, r := range []schema.GroupVersionResource{
		{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}, {Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"},
		{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	} {
		list, err := l.client.Resource(r).Namespace("shop").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, u := range list.Items {
			names = append(names, r.Resource+"/"+u.GetName())
		}
	}
	return names
}

// background runs heart until end is called, which gives its exit code.
func (l live) background(t *testing.T) (end func() int, log *locked) {
	ctx, cancel := context.WithCancel(t.Context())
	log = &locked{}
	done := make(chan int, 1)
	go func() { done <- Run(ctx, l.args, log, log) }()
	end = sync.OnceValue(func() int { cancel(); return <-done })
	t.Cleanup(func() { end() })
	return end, log
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

func (l live) metric(t *testing.T, line string) bool {
	response, err := http.Get("http://" + l.listen + "/metrics")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	require.NoError(t, err)
	return strings.Contains(text.String(), line)
}

// TestHeartOnAnAPIServer runs the command as the chart's service account, with
// no more rights than that has, against a real API server and Prometheus.
func TestHeartOnAnAPIServer(t *testing.T) {
	testbedtest.Require(t, "kind", istiotest.Check())
	l := newLive(t)
	told := l.waitSteps(t)
	require.Contains(t, told, "component e: a group's share")
	require.Contains(t, told, "create VirtualService heart-e\n+ hosts:\n+     - e.shop.svc.cluster.local\n")
	require.Empty(t, l.written(t), "a dry run writes nothing")

	code, _, stderr := run(t, append(l.args, "--once")...)
	require.Equal(t, cli.Done, code, stderr)
	require.Equal(t, []string{"virtualservices/heart-e", "destinationrules/heart-e"}, l.written(t))

	end, log := l.background(t)
	soon := func(what string, ok func() bool) {
		require.Eventually(t, ok, 20*time.Second, 100*time.Millisecond, "%s\n%s", what, log)
	}
	soon("steps as the leader", func() bool { return l.metric(t, "heart_leader 1") && l.metric(t, `heart_steps_total{failed="none"} 3`) })
	response, err := http.Get("http://" + l.listen + "/readyz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)

	// The only endpoint on n2 goes, and with it the group's share.
	require.NoError(t, l.Client().DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), "e-e-2", metav1.DeleteOptions{}))
	soon("no share for n2", func() bool { return !l.metric(t, `group="e@n2"`) })

	l.stop()
	soon("failed steps", func() bool { return l.metric(t, `heart_steps_total{failed="observe"} 2`) })
	require.Contains(t, l.written(t), "virtualservices/heart-e", "the table in force stays")
	soon("an event", func() bool {
		events, err := l.Client().CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0 && events.Items[0].Reason == "StepFailed"
	})
	require.Equal(t, cli.Done, end(), log)
	lease, err := l.Client().CoordinationV1().Leases("shop").Get(t.Context(), "heart", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, *lease.Spec.HolderIdentity, "the lease is given back")

	code, stdout, stderr := run(t, append([]string{"reset"}, l.args...)...)
	require.Equal(t, cli.Done, code, stderr)
	require.Contains(t, stdout, "delete VirtualService heart-e")
	require.Empty(t, l.written(t))
}
