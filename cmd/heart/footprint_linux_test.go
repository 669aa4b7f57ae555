package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"

	"heartbed/heart/istio/istiotest"
)

// The application of the footprint: a chain of components, each with the same
// number of replicas on each node.
const (
	components = 5
	each       = 80
	nodes      = 8
)

// counters is what the service program's exporters show of all replicas:
// each calls every replica of the next component, 25,680 counters in all.
func counters(age float64) string {
	var page strings.Builder
	for c := range components {
		for r := range each {
			fmt.Fprintf(&page, "heartbed_cpu_seconds_total{replica=\"c%d-%d\"} %f\n", c, r, age*(1+float64(r%nodes)/nodes))
			callers := each
			if c == 0 {
				callers = 1
			}
			for k := range callers {
				fmt.Fprintf(&page, "heartbed_requests_total{code=\"OK\",replica=\"c%d-%d\",caller=\"c%d\",caller_replica=\"c%d-%d\"} %d\n", c, r, c-1, c-1, k, int(age*10))
			}
		}
	}
	for a := range nodes {
		for b := range nodes {
			fmt.Fprintf(&page, "test_rtt_seconds{source=\"n%d\",target=\"n%d\"} %f\n", a, b, 0.001*float64(max(a-b, b-a)))
		}
	}
	return page.String()
}

// chain is a namespace with the application, and Prometheus that scrapes it.
func chain(t *testing.T) live {
	l := live{Cluster: istiotest.Start(t), listen: free(t)}
	l.client, l.account = dynamic.NewForConfigOrDie(l.Config), l.Kubeconfig
	l.InstallIstio(t)
	l.CreateNamespace(t, "shop")
	for n := range nodes {
		l.createNode(t, fmt.Sprintf("n%d", n))
	}
	calls := ""
	for c := range components {
		name, service := fmt.Sprintf("c%d", c), ""
		if c > 0 {
			service = name
			l.CreateService(t, "shop", service, 7000)
			calls += fmt.Sprintf("{from: c%d, to: c%d}, ", c-1, c)
		}
		for r := range each {
			l.CreatePod(t, istiotest.Pod{
				Namespace: "shop", Name: fmt.Sprintf("%s-%d", name, r), Node: fmt.Sprintf("n%d", r%nodes), Labels: map[string]string{"app": name},
				Service: service, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(c), byte(r + 1)}), 7000),
			})
		}
	}
	began := time.Now()
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, counters(time.Since(began).Seconds()))
	}))
	t.Cleanup(exporter.Close)
	l.prometheusURL, l.prometheus = startPrometheus(t, "5s", strings.TrimPrefix(exporter.URL, "http://"))
	l.config = fmt.Sprintf(`calls: [%s]
period: 10s
maxAge: 60s
prometheus:
  address: %s
  window: 30s
  cpu: {preset: heartbed}
  requests: {preset: heartbed}
  rtt: {promql: test_rtt_seconds, labels: {source: source, target: target}}
`, calls, l.prometheusURL)
	return l
}

// TestFootprint measures the program at 400 replicas: CPU time at the default
// period of 30 s, and the memory that the kernel cannot take back, at its
// greatest. Pages of the program file, which are resident too, it can.
func TestFootprint(t *testing.T) {
	requirePrograms(t)
	l := chain(t)
	p := istiotest.Run(t, build(t), l.args(t)...)
	soon(t, "two steps", output{p}, func() bool { return l.steps(t, "none") >= 2 })
	from, began := cpuSeconds(t, p.PID()), l.steps(t, "none")
	anonymous, file := 0.0, 0.0
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		anonymous, file = max(anonymous, residentMB(t, p.PID(), "RssAnon")), max(file, residentMB(t, p.PID(), "RssFile"))
	}
	used, steps := cpuSeconds(t, p.PID())-from, l.steps(t, "none")-began
	require.GreaterOrEqual(t, steps, 3, p.Output())
	step := used / float64(steps)
	t.Logf("400 replicas: %.3f s of CPU time a step, %.2f %% of a core at a step in 30 s; %.0f MB of memory and %.0f MB of the program file",
		step, step/30*100, anonymous, file)
	require.Less(t, step/30, 0.01)
	require.Less(t, anonymous, 50.0)
}

// cpuSeconds that a process has taken; the kernel counts in hundredths.
func cpuSeconds(t *testing.T, pid int) float64 {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return float64(user+system) / 100
}

// residentMB is the resident memory of a process of one kind.
func residentMB(t *testing.T, pid int, kind string) float64 {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(t, err)
	found := regexp.MustCompile(kind + `:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, found)
	kB, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return float64(kB) / 1000
}
