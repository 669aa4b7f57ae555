package experiments_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"heartbed/testbed/kube"
	"heartbed/testbed/live"
)

const (
	// flush lies between two pushes of a pod; four of them and a sample is void.
	flush = 5 * time.Second
	// round is one of an HPA, and something for what it does.
	round = 17 * time.Second
	// steadySum is how many requests are in flight under the steady load.
	steadySum = spikeRPS / perReplica * ratedActive
	// tooLow is a sum that some pods must be missing from: a seventh of a pod's
	// requests come and go by chance.
	tooLow = 0.7 * steadySum
)

// reading is an answer of the API of custom metrics, or why there was none.
type reading struct {
	at   time.Time
	err  error
	pods map[string]sample
	sum  float64
}

type sample struct {
	value float64
	at    metav1.Time
}

const metricsPath = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/" + spikeSpace + "/pods/*/" + activeMetric

// read asks the API as an HPA does.
func (l *spikeLab) read(ctx context.Context) reading {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r := reading{pods: map[string]sample{}}
	raw, err := l.client.CoreV1().RESTClient().Get().AbsPath(metricsPath).Param("labelSelector", "app="+byActive).DoRaw(ctx)
	r.at, r.err = time.Now(), err
	if err != nil {
		return r
	}
	var list v1beta2.MetricValueList
	if r.err = json.Unmarshal(raw, &list); r.err != nil {
		return r
	}
	for _, v := range list.Items {
		s := sample{float64(v.Value.MilliValue()) / 1000, v.Timestamp}
		r.pods[v.DescribedObject.Name] = s
		r.sum += s.value
	}
	return r
}

func (r reading) String() string {
	if r.err != nil {
		return "error: " + r.err.Error()
	}
	return fmt.Sprintf("%d pods, %.0f requests in flight", len(r.pods), r.sum)
}

// readings asks over and over until it is told to end.
type readings struct {
	stop context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	all  []reading
}

func (l *spikeLab) readOn(ctx context.Context) *readings {
	ctx, cancel := context.WithCancel(ctx)
	r := &readings{stop: cancel}
	r.done.Go(func() {
		for ctx.Err() == nil {
			one := l.read(ctx)
			if ctx.Err() != nil {
				return
			}
			r.mu.Lock()
			r.all = append(r.all, one)
			r.mu.Unlock()
			_ = live.Pause(ctx, 500*time.Millisecond) // its end is that of the loop
		}
	})
	return r
}

// since gives what was read since a moment.
func (r *readings) since(at time.Time) (list []reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if one.at.After(at) {
			list = append(list, one)
		}
	}
	return list
}

func (r *readings) end() {
	r.stop()
	r.done.Wait()
}

// last is the newest.
func (r *readings) last() (reading, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return reading{}, false
	}
	return r.all[len(r.all)-1], true
}

// braceForFaults makes the HPA as quick to scale in as it can be, at once at the
// first low number, and leaves it no other way to go: it would like half as many
// replicas again as it may have, so that the load's own noise moves nothing.
func (l *spikeLab) braceForFaults(ctx context.Context, t *testing.T) (replicas int) {
	var now sighting
	until(ctx, t, "replicas that are all ready", func() bool {
		now, _ = l.watch.now(byActive)
		return now.ready == now.wanted && now.pods == now.wanted
	})
	patch := fmt.Sprintf(`[
		{"op": "replace", "path": "/spec/maxReplicas", "value": %d},
		{"op": "replace", "path": "/spec/metrics/0/pods/target/averageValue", "value": "%.1f"},
		{"op": "replace", "path": "/spec/behavior/scaleDown/stabilizationWindowSeconds", "value": 0}]`,
		now.wanted, steadySum/float64(now.wanted)/1.5)
	_, err := l.client.AutoscalingV2().HorizontalPodAutoscalers(spikeSpace).Patch(ctx, byActive, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	return now.wanted
}

// answersAsDocumented: kubectl gets what docs/activescale.md says, and whoever
// asks twice within a flush gets the same twice.
func (l *spikeLab) answersAsDocumented(ctx context.Context, t *testing.T) {
	l.replicas = l.braceForFaults(ctx, t)
	said, err := exec.CommandContext(ctx, "kubectl", "--kubeconfig", l.kubeconfig, "get", "--raw", metricsPath+"?labelSelector=app%3D"+byActive).CombinedOutput()
	require.NoError(t, err, "%s", said)
	t.Logf("kubectl get --raw: %s", said)
	r := l.readOn(ctx)
	defer r.end()
	require.NoError(t, live.Pause(ctx, 2*flush+time.Second))
	r.end()
	l.complete(t, r.since(time.Time{}))
	seen, same := map[string]map[metav1.Time]float64{}, 0
	for _, one := range r.since(time.Time{}) {
		for pod, s := range one.pods {
			if seen[pod] == nil {
				seen[pod] = map[metav1.Time]float64{}
			}
			if was, there := seen[pod][s.at]; there {
				require.Equal(t, was, s.value, "pod %s at %v", pod, s.at)
				same++
			}
			seen[pod][s.at] = s.value
		}
	}
	require.Greater(t, same, l.replicas)
}

// complete asserts that each answer is one and tells of all pods.
func (l *spikeLab) complete(t *testing.T, list []reading) {
	t.Helper()
	require.NotEmpty(t, list)
	for _, r := range list {
		require.NoError(t, r.err)
		require.Len(t, r.pods, l.replicas)
		require.Greater(t, r.sum, tooLow)
	}
}

// honest asserts that an answer is an error or tells of all pods.
func (l *spikeLab) honest(t *testing.T, list []reading) (errors, answers int) {
	t.Helper()
	said := map[string]bool{}
	for _, r := range list {
		if r.err != nil {
			errors++
			if text := r.err.Error(); !said[text] {
				said[text] = true
				t.Logf("%v after the first: %s", r.at.Sub(list[0].at).Round(time.Second), text)
			}
			continue
		}
		answers++
		require.Len(t, r.pods, l.replicas, "%v", r)
		require.Greater(t, r.sum, tooLow, "%v", r)
	}
	return errors, answers
}

// keepsReplicas asserts that the HPA has never wanted fewer since a moment.
func (l *spikeLab) keepsReplicas(t *testing.T, since time.Time) {
	t.Helper()
	require.GreaterOrEqual(t, l.watch.fewest(byActive, since), l.replicas, "%s", strings.Join(l.watch.words(byActive, since), "\n"))
}

// sees waits until the HPA scales by the metric, and the API tells of all pods.
func (l *spikeLab) sees(ctx context.Context, t *testing.T, r *readings) {
	t.Helper()
	until(ctx, t, "HPA that sees all pods", func() bool {
		_, h := l.watch.now(byActive)
		last, any := r.last()
		return any && last.err == nil && len(last.pods) == l.replicas && h.active == corev1.ConditionTrue
	})
}

// befalls runs a fault while the API is asked, and checks that it cost no
// replica from its begin until the HPA has seen for another of its rounds.
func (l *spikeLab) befalls(ctx context.Context, t *testing.T, fault func(r *readings)) {
	t.Helper()
	r := l.readOn(ctx)
	defer r.end()
	began := time.Now()
	fault(r)
	l.sees(ctx, t, r)
	t.Logf("the HPA sees all pods again %v after the fault began", time.Since(began).Round(time.Second))
	seeing := time.Now()
	require.NoError(t, live.Pause(ctx, round))
	l.keepsReplicas(t, began)
	l.honest(t, r.since(seeing))
	l.sees(ctx, t, r)
	t.Logf("HPA since the fault:\n%s", strings.Join(l.watch.words(byActive, began), "\n"))
}

// losesRedis: what one of the two replicas hears is not all. As long as what it
// has read of the other is fresh it answers for all, and then not at all.
func (l *spikeLab) losesRedis(ctx context.Context, t *testing.T) {
	l.befalls(ctx, t, func(r *readings) {
		began := time.Now()
		l.scaleTo(ctx, t, "redis", 0)
		require.NoError(t, kube.RemovePods(ctx, l.client, spikeSpace, "app=redis"))
		gone := time.Now()
		until(ctx, t, "HPA that gets an error", func() bool { _, h := l.watch.now(byActive); return h.active == corev1.ConditionFalse })
		failed, answered := l.honest(t, r.since(began))
		t.Logf("without Redis: %d errors and %d answers in %v", failed, answered, time.Since(began).Round(time.Second))
		require.Positive(t, failed)
		for _, one := range r.since(gone.Add(4*flush + time.Second)) {
			require.Error(t, one.err, "%v after Redis was gone, with streams to two replicas: %v", one.at.Sub(gone), one)
		}
		l.keepsReplicas(t, began)
		l.scaleTo(ctx, t, "redis", 1)
	})
}

// scaleTo sets the replicas of a Deployment.
func (l *spikeLab) scaleTo(ctx context.Context, t *testing.T, name string, replicas int32) {
	t.Helper()
	s, err := l.client.AppsV1().Deployments(spikeSpace).GetScale(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	s.Spec.Replicas = replicas
	_, err = l.client.AppsV1().Deployments(spikeSpace).UpdateScale(ctx, name, s, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// adapterPods are those of activescale's chart.
var adapterPods = metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=activescale"}

// losesReplica: one of the two is killed at once. Its streams go to the other
// one, and what it had heard is in Redis.
func (l *spikeLab) losesReplica(ctx context.Context, t *testing.T) {
	killed := l.adapters(ctx, t)[0]
	l.befalls(ctx, t, func(r *readings) {
		began, now := time.Now(), int64(0)
		require.NoError(t, l.client.CoreV1().Pods(spikeSpace).Delete(ctx, killed.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
		l.awaitAdapter(ctx, t, killed)
		failed, answered := l.honest(t, r.since(began))
		t.Logf("%d errors and %d answers until there were two again", failed, answered)
	})
}

// awaitAdapter waits until there are two replicas that are ready, and none of
// some former ones.
func (l *spikeLab) awaitAdapter(ctx context.Context, t *testing.T, former ...corev1.Pod) {
	t.Helper()
	until(ctx, t, "two replicas", func() bool {
		pods, err := l.client.CoreV1().Pods(spikeSpace).List(ctx, adapterPods)
		require.NoError(t, err)
		for _, p := range pods.Items {
			old := slices.ContainsFunc(former, func(f corev1.Pod) bool { return f.UID == p.UID })
			if old || !podReady(&p) {
				return false
			}
		}
		return len(pods.Items) == 2
	})
}

// adapters are activescale's replicas.
func (l *spikeLab) adapters(ctx context.Context, t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := l.client.CoreV1().Pods(spikeSpace).List(ctx, adapterPods)
	require.NoError(t, err)
	require.Len(t, pods.Items, 2)
	return pods.Items
}

// isUpdated: both replicas are replaced as kubectl rollout restart does.
func (l *spikeLab) isUpdated(ctx context.Context, t *testing.T) {
	former := l.adapters(ctx, t)
	l.befalls(ctx, t, func(r *readings) {
		began := time.Now()
		patch := fmt.Sprintf(`{"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": %q}}}}}`, began.Format(time.RFC3339))
		_, err := l.client.AppsV1().Deployments(spikeSpace).Patch(ctx, adapter, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
		l.awaitAdapter(ctx, t, former...)
		failed, answered := l.honest(t, r.since(began))
		t.Logf("%d errors and %d answers in the %v of the update", failed, answered, time.Since(began).Round(time.Second))
	})
}

// losesSink: what the pods push gets lost on their nodes. Within four flushes
// the API has nothing to tell, and says so.
func (l *spikeLab) losesSink(ctx context.Context, t *testing.T) {
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "!" + controlPlane})
	require.NoError(t, err)
	rule := func(ctx context.Context, do string) error {
		for _, n := range nodes.Items { // each is a container of that name
			said, err := exec.CommandContext(ctx, "docker", "exec", n.Name, "iptables", "-t", "mangle", do, "PREROUTING", "-p", "tcp", "--dport", "9000", "-j", "DROP").CombinedOutput()
			if err != nil {
				return fmt.Errorf("node %s: %w: %s", n.Name, err, said)
			}
		}
		return nil
	}
	l.befalls(ctx, t, func(r *readings) {
		mend := sync.OnceValue(func() error { return rule(context.WithoutCancel(ctx), "-D") })
		t.Cleanup(func() { _ = mend() }) // where it failed in the middle
		require.NoError(t, rule(ctx, "-I"))
		began := time.Now()
		until(ctx, t, "error", func() bool { last, any := r.last(); return any && last.err != nil })
		took := time.Since(began)
		t.Logf("nobody pushes: an error after %v", took.Round(100*time.Millisecond))
		require.Less(t, took, 4*flush+2*time.Second, "four flushes, and the time to ask")
		until(ctx, t, "HPA that gets an error", func() bool { _, h := l.watch.now(byActive); return h.active == corev1.ConditionFalse })
		for _, one := range r.since(began.Add(took)) {
			require.Error(t, one.err)
		}
		l.keepsReplicas(t, began)
		require.NoError(t, mend())
	})
}

// tellFaults says what the load of the faults has met, and what has died that
// nobody killed.
func (l *spikeLab) tellFaults(ctx context.Context, t *testing.T) {
	if l.steady == nil {
		return
	}
	for _, namespace := range []string{spikeSpace, metav1.NamespaceSystem} {
		pods, err := l.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, p := range pods.Items {
			for _, c := range p.Status.ContainerStatuses {
				if c.RestartCount > 0 {
					t.Logf("%s of pod %s has been started %d times: %v", c.Name, p.Name, c.RestartCount+1, c.LastTerminationState.Terminated)
				}
			}
		}
	}
	l.steady.end()
	offered, answered, faults := l.steady.total()
	t.Logf("under the faults %d of %d requests were answered; %s", answered, offered, faults)
}
