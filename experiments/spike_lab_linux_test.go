package experiments_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"heartbed/experiments"
	"heartbed/internal/chart"
	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/kind"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/workloads"
	"heartbed/workloads/agent"
	"heartbed/workloads/service"
)

// spikeSpace is the namespace of the spike's lab.
const spikeSpace = "spike"

// The two Deployments of the same service; each is scaled by another HPA.
const (
	byActive = "activescale" // by requests in flight, which the pods push
	byCPU    = "cpu"         // by CPU time, through metrics-server
)

var rivals = []string{byActive, byCPU}

// TC1 of activescale's test report, ten times the load at once, at a size that
// two cores carry: a replica is meant for a tenth of the calibration's requests
// that take ten times as long, and ten of them are needed instead of twenty.
const (
	spikeRPS      = 50.0             // after the rise; a tenth before
	perReplica    = 5.0              // requests a second, for which a replica is meant
	spikeBefore   = 15 * time.Second // the HPAs have seen the load before, too
	spikeWindow   = 180 * time.Second
	spikeReplicas = 15
	dbCalls       = 2
	dbRTT         = 950 * time.Millisecond
	serviceMs     = 2.0 // of CPU that a request burns
	// The rated load takes about 60 % of the CPU request, and a fifth of the limit,
	// as in the calibration. The target of the HPA on CPU is what it really takes.
	requestMilli, limitMilli = 42, 125
)

// ratedActive is how many requests a replica has in flight at the rated load.
const ratedActive = perReplica * dbCalls * (float64(dbRTT) / float64(time.Second))

// spikePlan is what the run is judged by: the scenario's TC1 in the size of the
// lab. Targets and behavior are the calibration's.
func spikePlan(t *testing.T) testbed.Plan {
	s, err := experiments.Load("spike")
	require.NoError(t, err)
	e, err := s.Experiment(experiments.Selection{Apps: []string{"tc1"}, Methods: []string{byActive}, Repetitions: 1}, simulator)
	require.NoError(t, err)
	p := e.Trials[0].Plan
	p.RPS, p.Autoscale.RPSPerReplica = spikeRPS, perReplica
	require.Len(t, p.Load.Profile, 2)
	p.Load.Profile[1].At = workloads.Duration(spikeBefore)
	p.Load.Timeout = workloads.Duration(30 * time.Second)
	p.Timing.Drop, p.Timing.Duration = workloads.Duration(spikeBefore), workloads.Duration(spikeBefore+spikeWindow)
	return p
}

// spikeApp answers after some CPU time and calls of a distant database.
func spikeApp() workloads.Application {
	web := workloads.Component{Name: "web", Replicas: 1, Steps: []workloads.Step{{CPUMs: serviceMs}}}
	for range dbCalls {
		web.Steps = append(web.Steps, workloads.Step{Call: []string{"db"}})
	}
	return workloads.Application{
		Name: "web", Entry: "web",
		Components:  []workloads.Component{web, {Name: "db", Replicas: 1, Steps: []workloads.Step{{CPUMs: 0.001}}}},
		ServiceTime: workloads.Distribution{Kind: "lognormal", CV: 0.3},
		Server:      workloads.Server{Threads: 1},
	}
}

// spikeLab is the two Deployments with all that scales them: metrics-server,
// Redis, and activescale with two replicas.
type spikeLab struct {
	folder     string
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	image      string
	plan       testbed.Plan

	releases  []chart.Release // in the order of installation
	agents    []*agent.Client
	load      *agent.Client     // in a pod on the control plane's node
	gateways  map[string]string // host:port, of each rival
	database  string            // host:port
	watch     *replicaWatch
	steady    *steady // on activescale's, from the end of the spike on
	replicas  int     // that the HPA must keep under the faults
	targetCPU int     // percent of the CPU request
}

// newSpikeLab stands it up.
func newSpikeLab(ctx context.Context, t *testing.T, c *envconf.Config) *spikeLab {
	l := &spikeLab{folder: t.TempDir(), plan: spikePlan(t), gateways: map[string]string{}}
	began := time.Now()
	stood := func(what string) { t.Logf("%-12s %v", what, time.Since(began).Round(time.Second)) }
	var err error
	l.kubeconfig, err = cluster.Up(ctx, labPlan())
	require.NoError(t, err)
	stood("cluster")
	c.WithKubeconfigFile(l.kubeconfig)
	l.config = c.Client().RESTConfig()
	l.config.QPS, l.config.Burst, l.config.WarningHandler = 200, 400, rest.NoWarnings{}
	l.client = kubernetes.NewForConfigOrDie(l.config)
	l.dynamic = dynamic.NewForConfigOrDie(l.config)
	t.Cleanup(func() { l.close(context.WithoutCancel(ctx), t) })
	t.Cleanup(func() { l.tell(t) })

	l.loadImage(ctx, t)
	stood("images")
	_, err = l.client.CoreV1().Namespaces().Apply(ctx, apply.Namespace(spikeSpace), kube.Applied)
	require.NoError(t, err)
	l.install(ctx, t, "testdata/spike/metrics-server", "metrics-server", onControlPlane(nil))
	l.install(ctx, t, "testdata/spike/redis", "redis", onControlPlane(nil))
	l.installAdapter(ctx, t)
	l.installDatabase(ctx, t)
	l.installServices(ctx, t)
	l.watch = watchReplicas(ctx, t, l.client)
	l.ready(ctx, t)
	stood("all")
	return l
}

// loadImage puts all programs into one image and that into every node.
func (l *spikeLab) loadImage(ctx context.Context, t *testing.T) {
	redis, err := exec.LookPath("redis-server")
	require.NoError(t, err, "apt-get install --no-install-recommends redis-server")
	build := exec.CommandContext(ctx, "go", "build", "-o", l.folder+string(filepath.Separator), "heartbed/cmd/activescale", "heartbed/cmd/workload")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	metricsServer, err := image.MetricsServer(ctx, image.Options{Progress: os.Stderr})
	require.NoError(t, err)
	all, err := image.Programs("", filepath.Join(l.folder, "activescale"), filepath.Join(l.folder, "workload"), metricsServer, redis)
	require.NoError(t, err)
	require.NoError(t, cluster.Load(ctx, all, true))
	l.image = all.Name
}

// onControlPlane adds to a chart's values what puts its pods beside the nodes of
// the plan.
func onControlPlane(values map[string]any) map[string]any {
	all := map[string]any{
		"nodeSelector": map[string]string{controlPlane: ""},
		"tolerations":  []any{map[string]string{"key": controlPlane, "operator": "Exists"}},
	}
	for k, v := range values {
		all[k] = v
	}
	return all
}

// install installs a chart with the lab's image.
func (l *spikeLab) install(ctx context.Context, t *testing.T, dir, name string, values map[string]any) {
	values["image"] = l.image
	r, err := chart.Render(dir, name, spikeSpace, values)
	require.NoError(t, err)
	l.releases = append(l.releases, r)
	require.NoError(t, r.Install(ctx, l.dynamic))
}

// address is that of a Service: the cluster has no DNS.
func (l *spikeLab) address(ctx context.Context, t *testing.T, name string, port uint16) netip.AddrPort {
	s, err := l.client.CoreV1().Services(spikeSpace).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	return netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIP), port)
}

// adapter is the name of activescale's release, activeMetric of what it serves.
const (
	adapter      = "adapter"
	activeMetric = "inbound_active_requests"
)

// installAdapter installs activescale by its own chart.
func (l *spikeLab) installAdapter(ctx context.Context, t *testing.T) {
	l.install(ctx, t, "../deploy/activescale", adapter, map[string]any{
		"imagePullPolicy": "Never", "redis": l.address(ctx, t, "redis", 6379).String(), "cpuRequest": "50m",
	})
}

// settings are a program's, as JSON.
func settings(t *testing.T, c service.Config) string {
	c.App = spikeApp()
	c.Metrics = fmt.Sprintf("0.0.0.0:%d", live.MetricsPort)
	raw, err := json.Marshal(c)
	require.NoError(t, err)
	return string(raw)
}

// listen is where a program takes calls.
func listen(port uint16) string { return fmt.Sprintf("0.0.0.0:%d", port) }

// installDatabase makes the database and holds its answers at the nodes of its
// callers, whose pods come and go.
func (l *spikeLab) installDatabase(ctx context.Context, t *testing.T) {
	l.install(ctx, t, "testdata/spike/program", "db", onControlPlane(map[string]any{
		"config": settings(t, service.Config{Replica: "db", Component: "db", Listen: listen(live.GRPCPort)}),
	}))
	names := []string{"db"}
	for _, n := range labPlan().Nodes {
		a := kube.Agent{
			Name: "delay-" + n.Name, Namespace: spikeSpace, Image: l.image, Program: "/workload", Pull: corev1.PullNever,
			Affinity: kube.Host{Label: kind.NodeLabel, Value: n.Name}.Affinity(), OfNode: true, Requests: 0.05,
		}
		require.NoError(t, a.Apply(ctx, l.client))
		names = append(names, a.Name)
	}
	control := kube.Host{Label: controlPlane, Value: ""}
	load := kube.Agent{Name: "load", Namespace: spikeSpace, Image: l.image, Program: "/workload", Pull: corev1.PullNever, Affinity: control.Affinity(), Tolerate: true}
	require.NoError(t, load.Apply(ctx, l.client))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pods, err := kube.AwaitPods(ctx, l.client, spikeSpace, append(names, "load"))
	require.NoError(t, err)
	db, err := kube.Address(pods[0])
	require.NoError(t, err)
	for i, pod := range pods[1:] {
		a, err := kube.ConnectAgent(ctx, l.config, pod)
		require.NoError(t, err)
		l.agents = append(l.agents, a)
		if i == len(pods)-2 {
			l.load = a
			break
		}
		shaper, err := a.Shape(ctx, db, uint64(i))
		require.NoError(t, err)
		// The other side holds nothing, so that the whole way is here.
		require.NoError(t, shaper.Apply(ctx, map[netip.Addr]tc.Link{db: {RTT: 2 * dbRTT}}))
	}
	l.database = netip.AddrPortFrom(db, live.GRPCPort).String()
}

// installServices makes the two Deployments with their HPAs at the same time, so
// that both decide at the same moments, and a gateway before each, which opens a
// connection for every request: kube-proxy picks the pod.
func (l *spikeLab) installServices(ctx context.Context, t *testing.T) {
	a := l.plan.Autoscale
	for _, name := range rivals {
		values := map[string]any{
			"config": settings(t, service.Config{
				Replica: name, Component: "web", Listen: listen(live.GRPCPort), BehindGateway: true,
				Targets: map[string]string{"db": "passthrough:///" + l.database},
			}),
			"requestMilli": requestMilli, "limitMilli": limitMilli, "maxReplicas": spikeReplicas,
			"metrics":  []any{l.metric(name)},
			"behavior": map[string]any{"scaleUp": rulesOf(a.ScaleUp), "scaleDown": rulesOf(a.ScaleDown)},
		}
		if name == byActive {
			values["arguments"] = []string{"--push-to", l.address(ctx, t, adapter, 9000).String()}
		}
		l.install(ctx, t, "testdata/spike/service", name, values)
	}
	var pods []string
	for _, name := range rivals {
		web := l.address(ctx, t, name, live.GRPCPort).String()
		gateway := "gateway-" + name
		l.install(ctx, t, "testdata/spike/program", gateway, onControlPlane(map[string]any{
			"config": settings(t, service.Config{
				Replica: gateway, Component: testbed.GatewayComponent, Listen: listen(live.GatewayPort), Gateway: true,
				Services: map[string]string{"web": web}, Targets: map[string]string{"web": "passthrough:///" + web},
			}),
		}))
		pods = append(pods, gateway)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ready, err := kube.AwaitPods(ctx, l.client, spikeSpace, pods)
	require.NoError(t, err)
	for i, name := range rivals {
		addr, err := kube.Address(ready[i])
		require.NoError(t, err)
		l.gateways[name] = netip.AddrPortFrom(addr, live.GatewayPort).String()
	}
}

// untilMeasured is a target of CPU, in percent, that nothing exceeds.
const untilMeasured = 1000

// metric is what the HPA of a rival scales by.
func (l *spikeLab) metric(name string) map[string]any {
	if name == byCPU {
		return map[string]any{"type": "Resource", "resource": map[string]any{
			"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": untilMeasured},
		}}
	}
	return map[string]any{"type": "Pods", "pods": map[string]any{
		"metric": map[string]any{"name": activeMetric},
		"target": map[string]any{"type": "AverageValue", "averageValue": fmt.Sprint(l.plan.Autoscale.TargetActive)},
	}}
}

// rulesOf is one direction of an HPA's behavior.
func rulesOf(r *testbed.ScaleRules) map[string]any {
	var policies []any
	for _, p := range r.Policies {
		kind, value := "Percent", p.Percent
		if p.Pods > 0 {
			kind, value = "Pods", p.Pods
		}
		policies = append(policies, map[string]any{"type": kind, "value": value, "periodSeconds": int(p.Period.Std().Seconds())})
	}
	return map[string]any{"stabilizationWindowSeconds": int(r.Stabilization.Std().Seconds()), "policies": policies}
}

// tell logs how the lab was when the test has failed.
func (l *spikeLab) tell(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, command := range [][]string{
		{"get", "nodes,apiservices"}, {"get", "pods,hpa,deployments,events", "-o", "wide"}, {"describe", "hpa"},
		{"logs", "--selector", "app.kubernetes.io/name=activescale", "--prefix", "--tail", "30"},
		{"logs", "--selector", "app=metrics-server", "--tail", "20"},
		{"logs", "--selector", "app=redis", "--tail", "20"},
		{"logs", "--selector", "app=" + byActive, "--prefix", "--tail", "5"},
	} {
		said, err := exec.Command("kubectl", append([]string{"--kubeconfig", l.kubeconfig, "--namespace", spikeSpace}, command...)...).CombinedOutput()
		t.Logf("%v: %v\n%s", command, err, said)
	}
}

// close removes the lab, the registered APIs first: without their servers no
// namespace could be deleted. The cluster stays.
func (l *spikeLab) close(ctx context.Context, t *testing.T) {
	if l.steady != nil {
		l.steady.stop()
	}
	if l.watch != nil {
		l.watch.end()
	}
	for _, a := range l.agents {
		_ = a.Close() // the cluster may be gone
	}
	for i := len(l.releases) - 1; i >= 0; i-- {
		if err := l.releases[i].Uninstall(ctx, l.dynamic); err != nil {
			t.Errorf("uninstall %s: %v", l.releases[i].Name, err)
		}
	}
	now := int64(0)
	namespaces := l.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, spikeSpace, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete the namespace: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := kube.RemovePods(ctx, l.client, spikeSpace, ""); err != nil {
		t.Errorf("remove the pods: %v", err)
	}
	for {
		_, err := namespaces.Get(ctx, spikeSpace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		if pauseErr := live.Pause(ctx, 100*time.Millisecond); pauseErr != nil {
			t.Errorf("the namespace is still there: %v", errors.Join(pauseErr, err))
			return
		}
	}
}
