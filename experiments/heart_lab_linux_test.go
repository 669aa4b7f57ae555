package experiments_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"heartbed/heart"
	"heartbed/internal/chart"
	"heartbed/testbed"
	"heartbed/testbed/kind"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/workloads"
	"heartbed/workloads/agent"
	"heartbed/workloads/service"
)

// shop is the namespace of the lab.
const shop = "shop"

// lab is a small application with Prometheus and heart in its namespace, both
// from their charts. Nothing of it is on this machine but who asks.
type lab struct {
	folder     string
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	programs   image.Archive

	prometheus, heart chart.Release
	observed          string // address of Prometheus
	settings          string // of heart, without its namespace

	workloads kube.Workloads
	beside    *agent.Client // in a pod on the control plane's node
	http      http.Client   // from there
}

// labPlan has the nodes of testdata/kind.yaml, so that one cluster serves both
// tests. b alone is on n3 and asks for all of it: heart's pods are elsewhere.
func labPlan() testbed.Plan {
	return testbed.Plan{
		App: workloads.Application{
			Name: "pair", Entry: "a",
			Components: []workloads.Component{
				{Name: "a", Replicas: 2, Steps: []workloads.Step{{CPUMs: 0.1}, {Call: []string{"b"}}}},
				{Name: "b", Replicas: 3, Steps: []workloads.Step{{CPUMs: 0.3}}},
			},
			Server: workloads.Server{Slots: 1, Threads: 1},
		},
		Nodes: []testbed.Node{{Name: "n1", Cores: 1, Slowness: 1}, {Name: "n2", Cores: 1, Slowness: 2}, {Name: "n3", Cores: 1, Slowness: 4}},
		RTT:   [][]time.Duration{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
		Replicas: []heart.Replica{
			{Name: "a1", Component: "a", Node: "n1"}, {Name: "a2", Component: "a", Node: "n2"},
			{Name: "b1", Component: "b", Node: "n1"}, {Name: "b2", Component: "b", Node: "n2"}, {Name: "b3", Component: "b", Node: "n3"},
		},
		Load: workloads.Load{Schedule: "open", Arrivals: "even"},
		RPS:  perCaller,
	}
}

// newLab stands it up. What heart tells is logged when the test has failed.
func newLab(ctx context.Context, t *testing.T, c *envconf.Config) *lab {
	plan := labPlan()
	l := &lab{folder: t.TempDir()}
	var err error
	l.kubeconfig, err = cluster.Up(ctx, plan)
	require.NoError(t, err)
	c.WithKubeconfigFile(l.kubeconfig)
	l.config = c.Client().RESTConfig()
	l.config.QPS, l.config.Burst, l.config.WarningHandler = 200, 400, rest.NoWarnings{}
	l.client = kubernetes.NewForConfigOrDie(l.config)
	l.dynamic = dynamic.NewForConfigOrDie(l.config)

	observer := l.images(ctx, t)
	_, err = l.client.CoreV1().Namespaces().Apply(ctx, apply.Namespace(shop), kube.Applied)
	require.NoError(t, err)
	t.Cleanup(func() { l.tell(t) })
	l.installPrometheus(ctx, t, observer)
	l.settings = fmt.Sprintf(`calls: [{from: a, to: b}]
componentLabel: %s
router: xds
period: %v
maxAge: 10s
prometheus:
  address: %s
  window: 6s
  cpu: {preset: heartbed}
  requests: {preset: heartbed}
`, kube.ComponentLabel, period, l.observed)
	l.installHeart(ctx, t, 0) // its Service's address is in the workloads
	l.createWorkloads(ctx, t, plan)
	l.installHeart(ctx, t, 2)
	return l
}

// images builds ours and that of Prometheus, and loads both.
func (l *lab) images(ctx context.Context, t *testing.T) (prometheus image.Archive) {
	build := exec.CommandContext(ctx, "go", "build", "-o", l.folder+string(filepath.Separator), "heartbed/cmd/heart", "heartbed/cmd/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	l.programs, err = image.Programs("", l.program("heart"), l.program("workload"))
	require.NoError(t, err)
	observer, err := image.Prometheus(ctx, image.Options{Progress: os.Stderr})
	require.NoError(t, err)
	prometheus, err = image.Programs("", observer)
	require.NoError(t, err)
	for _, a := range []image.Archive{l.programs, prometheus} {
		require.NoError(t, cluster.Load(ctx, a, true))
	}
	return prometheus
}

func (l *lab) program(name string) string { return filepath.Join(l.folder, name) }

// controlPlane is the label of the control plane's node, and the key of its taint.
const controlPlane = "node-role.kubernetes.io/control-plane"

// installPrometheus puts it beside the nodes of the plan. The cluster has no
// DNS, so that its address is that of its Service.
func (l *lab) installPrometheus(ctx context.Context, t *testing.T, from image.Archive) {
	var err error
	l.prometheus, err = chart.Render("../deploy/prometheus", "prometheus", shop, map[string]any{
		"image": from.Name, "scrapeInterval": "1s",
		"nodeSelector": map[string]string{controlPlane: ""}, "tolerations": []any{map[string]string{"key": controlPlane, "operator": "Exists"}},
	})
	require.NoError(t, err)
	require.NoError(t, l.prometheus.Install(ctx, l.dynamic))
	l.observed = "http://" + l.service(ctx, t, "prometheus", 9090).String()
}

func (l *lab) service(ctx context.Context, t *testing.T, name string, port uint16) netip.AddrPort {
	s, err := l.client.CoreV1().Services(shop).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), port)
}

// installHeart installs the chart with the lab's settings, or upgrades to them.
func (l *lab) installHeart(ctx context.Context, t *testing.T, replicas int) {
	var err error
	l.heart, err = chart.Render("../deploy/heart", "heart", shop, map[string]any{
		"image": l.programs.Name, "replicas": replicas, "config": l.settings,
	})
	require.NoError(t, err)
	require.NoError(t, l.heart.Install(ctx, l.dynamic))
}

// createWorkloads makes the replicas, whose tables come from heart's Service,
// and the agent from whose pod load is offered and metrics are read.
func (l *lab) createWorkloads(ctx context.Context, t *testing.T, plan testbed.Plan) {
	layout := live.NewLayout(plan)
	requests := []float64{0.6, 0.6, 1}
	var hosts []kube.Host
	for i, n := range plan.Nodes {
		hosts = append(hosts, kube.Host{Label: kind.NodeLabel, Value: n.Name, CPUs: runtime.NumCPU(), Requests: requests[i]})
	}
	l.workloads = kube.Workloads{
		Client: l.client, Namespace: shop, Layout: &layout, Hosts: hosts, Image: l.programs.Name, Pull: corev1.PullNever,
		Program: "/workload", XDS: l.service(ctx, t, "heart", 18000),
	}
	require.NoError(t, l.workloads.Create(ctx))
	control := kube.Host{Label: controlPlane, Value: ""}
	load := kube.Agent{Name: "load", Namespace: shop, Image: l.programs.Name, Program: "/workload", Pull: corev1.PullNever, Affinity: control.Affinity(), Tolerate: true}
	require.NoError(t, load.Apply(ctx, l.client))

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	require.NoError(t, l.workloads.Await(ctx))
	pods, err := kube.AwaitPods(ctx, l.client, shop, []string{load.Name})
	require.NoError(t, err)
	l.beside, err = kube.ConnectAgent(ctx, l.config, pods[0])
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.beside.Close() }) // the cluster may be gone
	l.http = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return l.beside.Dial(ctx, addr) },
		DisableKeepAlives: true, // pods go
	}}
	for k, r := range layout.Replicas {
		if r.Component == "a" { // else it takes kube-proxy's choice
			l.put(ctx, t, k, service.BalancerPath+"b", string(heart.Weighted))
		}
	}
}

// close removes the lab; the cluster stays.
func (l *lab) close(ctx context.Context, t *testing.T) {
	for _, r := range []chart.Release{l.heart, l.prometheus} {
		require.NoError(t, r.Uninstall(ctx, l.dynamic))
	}
	now := int64(0)
	require.NoError(t, l.client.CoreV1().Namespaces().Delete(ctx, shop, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	require.NoError(t, kube.RemovePods(ctx, l.client, shop, ""))
}

// tell logs how the lab was when the test has failed.
func (l *lab) tell(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, command := range [][]string{
		{"get", "nodes"}, {"get", "pods,endpointslices,leases,events", "-o", "wide"},
		{"logs", "--selector", "app.kubernetes.io/name=heart", "--prefix", "--tail", "30"},
		{"logs", "--selector", "app.kubernetes.io/name=prometheus", "--tail", "30"},
	} {
		said, err := exec.Command("kubectl", append([]string{"--kubeconfig", l.kubeconfig, "--namespace", shop}, command...)...).CombinedOutput()
		t.Logf("%v: %v\n%s", command, err, said)
	}
}
