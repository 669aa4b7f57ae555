package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// startPrometheus runs a real one, which scrapes the targets.
func startPrometheus(t *testing.T, every string, targets ...string) (address string, p *istiotest.Process) {
	file := write(t, "prometheus.yml", "global: {scrape_interval: "+every+", scrape_timeout: "+every+"}\n"+
		"scrape_configs: [{job_name: pods, static_configs: [{targets: ["+strings.Join(targets, ", ")+"]}]}]\n")
	address = free(t)
	p = istiotest.Run(t, "prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(t.TempDir(), "data"), "--web.listen-address", address, "--log.level=error")
	return "http://" + address, p
}

// requirePrograms lets a test go on where what it runs is there.
func requirePrograms(t *testing.T) {
	_, err := exec.LookPath("prometheus")
	if err != nil {
		err = fmt.Errorf("%w: no prometheus in PATH (apt-get install prometheus): %w", errors.ErrUnsupported, err)
	}
	testbedtest.Require(t, "kind", errors.Join(istiotest.Check(), err))
}

// free gives a port that nobody listens on.
func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// live is a namespace with pods of d and e on two nodes, without Istio, and
// the chart installed.
type live struct {
	*istiotest.Cluster
	client     dynamic.Interface
	account    string // kubeconfig of the chart's service account
	listen     string // where heart serves
	config     string // of heart, without namespace and listen
	prometheus *istiotest.Process

	prometheusURL string
}

// newLive starts all but heart. more is added to heart's config; at is where
// pods serve, if they do.
func newLive(t *testing.T, more string, at map[string]netip.AddrPort) live {
	l := live{Cluster: istiotest.Start(t), listen: free(t)}
	l.client = dynamic.NewForConfigOrDie(l.Config)
	l.CreateNamespace(t, "shop")
	for _, name := range []string{"n1", "n2"} {
		l.createNode(t, name)
	}
	l.CreateService(t, "shop", "e", 7000)
	for i, p := range []istiotest.Pod{
		{Name: "d-1", Node: "n1"}, {Name: "e-1", Node: "n1", Service: "e"}, {Name: "e-2", Node: "n2", Service: "e"}, {Name: "e-3", Node: "n1", Service: "e"},
	} {
		p.Namespace, p.Labels = "shop", map[string]string{"app": p.Name[:1]}
		p.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7000)
		if serves, does := at[p.Name]; does {
			p.Address = serves
		}
		l.CreatePod(t, p)
	}
	l.prometheusURL, l.prometheus = startPrometheus(t, "250ms", exporter(t))
	l.config = fmt.Sprintf(`calls: [{from: d, to: e}]
period: 1s
maxAge: 5s
prometheus:
  address: %s
  window: 3s
  cpu: {counter: test_cpu_seconds_total, labels: {replica: replica}}
  requests: {counter: test_requests_total, labels: {replica: replica, callerComponent: caller}}
  rtt: {promql: test_rtt_seconds, labels: {source: source, target: target}}
`, l.prometheusURL) + more
	require.NoError(t, release(t, l.config).Install(t.Context(), l.client))
	l.account = l.asServiceAccount(t)
	return l
}

func (l live) createNode(t *testing.T, name string) {
	_, err := l.Client().CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// args of a heart that serves at l.listen, with the rights of the chart's
// account.
func (l live) args(t *testing.T, more ...string) []string {
	file := write(t, "heart.yaml", "namespace: shop\nlisten: "+l.listen+"\n"+l.config)
	return append(more, "--kubeconfig", l.account, "--config", file)
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
	var stdout string
	told := &said{}
	soon(t, "dry run that succeeds", told, func() bool {
		var code int
		code, stdout, told.text = run(t, l.args(t, "--once", "--dry-run", "--explain")...)
		return code == cli.Done
	})
	return stdout
}

// said is what a command has told last.
type said struct{ text string }

func (s *said) String() string { return s.text }

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
	args := l.args(t)
	go func() { done <- Run(ctx, args, log, log) }()
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

// metrics is the text at /metrics; "" while nobody serves it.
func (l live) metrics(t *testing.T) string {
	response, err := http.Get("http://" + l.listen + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

func (l live) metric(t *testing.T, line string) bool { return strings.Contains(l.metrics(t), line) }

// number is the value of a metric's line, 0 when there is none.
func (l live) number(t *testing.T, name string) float64 {
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(l.metrics(t))
	if found == nil {
		return 0
	}
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return value
}

// steps that failed in a stage, or "none".
func (l live) steps(t *testing.T, failed string) int {
	return int(l.number(t, `heart_steps_total{failed="`+failed+`"}`))
}

// share of d's requests on n1 that go to a group of e.
func (l live) share(t *testing.T, group string) float64 {
	return l.number(t, `heart_share_ratio{from="d@n1",group="`+group+`",to="e"}`)
}

// soon waits until something holds, two minutes at most.
func soon(t *testing.T, what string, log fmt.Stringer, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within two minutes:\n%s", what, log)
		}
	}
}

// TestHeartOnAnAPIServer runs the command as the chart's service account, with
// no more rights than that has, against a real API server and Prometheus.
func TestHeartOnAnAPIServer(t *testing.T) {
	requirePrograms(t)
	l := newLive(t, "", nil)
	l.InstallIstio(t)
	told := l.waitSteps(t)
	require.Contains(t, told, "component e: a group's share")
	require.Contains(t, told, "create VirtualService heart-e\n+ hosts:\n+     - e.shop.svc.cluster.local\n")
	require.Empty(t, l.written(t), "a dry run writes nothing")

	code, _, stderr := run(t, l.args(t, "--once")...)
	require.Equal(t, cli.Done, code, stderr)
	require.Equal(t, []string{"virtualservices/heart-e", "destinationrules/heart-e", "leases/heart"}, l.written(t))

	end, log := l.background(t)
	soon(t, "steps as the leader", log, func() bool { return l.metric(t, "heart_leader 1") && l.steps(t, "none") >= 3 })
	require.Equal(t, http.StatusOK, l.status(t, "/readyz"))
	require.Equal(t, http.StatusOK, l.status(t, "/healthz"))

	// The only endpoint on n2 goes, and with it the group's share.
	require.NoError(t, l.Client().DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), "e-e-2", metav1.DeleteOptions{}))
	soon(t, "table without n2", log, func() bool { return !l.metric(t, `group="e@n2"`) })

	l.prometheus.Stop()
	soon(t, "failed step", log, func() bool { return l.steps(t, "observe") >= 2 })
	require.Contains(t, l.written(t), "virtualservices/heart-e", "the table in force stays")
	soon(t, "event", log, func() bool {
		events, err := l.Client().CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0 && events.Items[0].Reason == "StepFailed"
	})
	require.Equal(t, cli.Done, end(), log)
	lease, err := l.Client().CoordinationV1().Leases("shop").Get(t.Context(), "heart", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, *lease.Spec.HolderIdentity, "the lease is given back")

	code, stdout, stderr := run(t, l.args(t, "reset")...)
	require.Equal(t, cli.Done, code, stderr)
	require.Contains(t, stdout, "delete VirtualService heart-e")
	require.Empty(t, l.written(t))
}

// status of an answer of heart.
func (l live) status(t *testing.T, path string) int {
	response, err := http.Get("http://" + l.listen + path)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}
