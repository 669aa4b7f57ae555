package experiments_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"heartbed/heart/istio"
	"heartbed/heart/istio/istiotest"
	"heartbed/internal/chart"
	"heartbed/testbed/kind"
	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

const (
	// period lies between two steps of heart.
	period = 3 * time.Second
	// points is how far what callers send may be from the table.
	points = 0.04
	// certain is a number of standard deviations that no draw is beyond.
	certain = 4
)

// Heart runs in a cluster as its chart installs it, with a Prometheus beside
// it, and callers that ask it for their tables. What it needs is killed in turn.
func TestHeartInACluster(t *testing.T) {
	onKind(t)
	var l *lab
	var load *traffic
	does := func(f func(*lab, context.Context, *testing.T, *traffic)) features.Func {
		return func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			f(l, ctx, t, load)
			return ctx
		}
	}
	environment.Test(t, features.New("heart").
		Setup(func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			l = newLab(ctx, t, c)
			load = l.offer(ctx)
			t.Cleanup(load.end)
			return ctx
		}).
		Assess("holds its shares for ten cycles", does((*lab).holdsShares)).
		Assess("keeps them without Prometheus", does((*lab).losesPrometheus)).
		Assess("hands over when the xDS server is killed", does((*lab).losesLeader)).
		Assess("goes on without a worker", does((*lab).losesWorker)).
		Assess("comes back when all of it is killed", does((*lab).losesAll)).
		Assess("writes what Istio reads", does((*lab).routesByIstio)).
		Assess("leaves nothing after a reset", does((*lab).resets)).
		Teardown(func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			load.end()
			l.close(ctx, t)
			return ctx
		}).Feature())
}

// holdsShares: the sum over ten cycles is that of the tables that were in force
// in each, and every cycle is as near as chance lets it be.
func (l *lab) holdsShares(ctx context.Context, t *testing.T, load *traffic) {
	// The first tables move the most, and when exactly a table came is not seen.
	until(ctx, t, "steps", func() bool { s := l.leader(ctx, t); return s != nil && s.steps["none"] >= 8 })
	l.follows(ctx, t)
	load.take() // before there was a table, requests waited for one

	const cycles = 10
	begin, expected := l.answered(ctx), amounts{}
	before, s := begin, l.leads(ctx, t)
	for range cycles {
		next := s
		until(ctx, t, "step", func() bool { next = l.leader(ctx, t); return next != nil && next.steps["none"] > s.steps["none"] })
		now := l.answered(ctx)
		sent := now.since(before)
		off, n := sent.differs(s.table, certain)
		require.LessOrEqual(t, off, points, "of %.0f requests %v, table %v", n, sent, s.table)
		for from, row := range s.table {
			for to, share := range row {
				total := 0.0
				for _, k := range sent[from] {
					total += k
				}
				expected.add(from, to, share*total)
			}
		}
		before, s = now, next
	}
	sent := before.since(begin)
	for from, row := range expected {
		total := 0.0
		for _, n := range row {
			total += n
		}
		for to := range row {
			row[to] /= total
		}
		expected[from] = row
	}
	off, n := sent.differs(expected, 0)
	t.Logf("%d cycles: at least %.0f requests a caller, %.1f points off at most; %v", cycles, n, 100*off, expected)
	require.GreaterOrEqual(t, n, 1000.0)
	require.LessOrEqual(t, off, points)
	require.Greater(t, s.table.of(l.group(2)), s.table.of(l.group(4)), "b1 is four times as fast as b3")
	load.allAnswered(t)
}

// follows waits until callers send what the table says.
func (l *lab) follows(ctx context.Context, t *testing.T) {
	t.Helper()
	until(ctx, t, "callers that follow the table", func() bool {
		s, before := l.leader(ctx, t), l.answered(ctx)
		if s == nil || len(s.table) == 0 || live.Pause(ctx, period) != nil {
			return false
		}
		off, n := l.answered(ctx).since(before).differs(s.table, 2)
		return n > 100 && off <= points
	})
}

// moves makes a callee slow, and waits for a table that gives it less and for
// callers that follow it: they have heard of a decision made since.
func (l *lab) moves(ctx context.Context, t *testing.T, callee int, table amounts) {
	t.Helper()
	l.inflate(ctx, t, callee, "10")
	group := l.group(callee)
	until(ctx, t, "table that gives a slow callee less", func() bool {
		s := l.leader(ctx, t)
		return s != nil && len(s.table) > 0 && s.table.of(group) < table.of(group)*0.7
	})
	l.follows(ctx, t)
	l.inflate(ctx, t, callee, "1")
}

// keeps asserts that callers send what a table says for some time.
func (l *lab) keeps(ctx context.Context, t *testing.T, table amounts) {
	t.Helper()
	before := l.answered(ctx)
	require.NoError(t, live.Pause(ctx, 3*period))
	off, n := l.answered(ctx).since(before).differs(table, certain)
	require.Greater(t, n, 100.0)
	require.LessOrEqual(t, off, points, "%v", table)
}

// kill removes pods at once, and gives how many they were.
func (l *lab) kill(ctx context.Context, t *testing.T, which metav1.ListOptions) {
	t.Helper()
	now := int64(0)
	require.NoError(t, l.client.CoreV1().Pods(shop).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, which))
}

// scale is how many Prometheus there are to be.
func (l *lab) scale(ctx context.Context, t *testing.T, replicas int32) {
	t.Helper()
	s, err := l.client.AppsV1().Deployments(shop).GetScale(ctx, "prometheus", metav1.GetOptions{})
	require.NoError(t, err)
	s.Spec.Replicas = replicas
	_, err = l.client.AppsV1().Deployments(shop).UpdateScale(ctx, "prometheus", s, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// losesPrometheus: without observations steps fail and the table stays.
func (l *lab) losesPrometheus(ctx context.Context, t *testing.T, load *traffic) {
	l.scale(ctx, t, 0)
	l.kill(ctx, t, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=prometheus"})
	failed := l.leads(ctx, t).steps["observe"]
	var s *said
	until(ctx, t, "failed steps", func() bool { s = l.leader(ctx, t); return s != nil && s.steps["observe"] >= failed+2 })
	l.keeps(ctx, t, s.table)
	after := l.leads(ctx, t)
	require.Equal(t, s.table, after.table)
	require.Equal(t, s.steps["none"], after.steps["none"])
	l.scale(ctx, t, 1)
	until(ctx, t, "steps again", func() bool { now := l.leader(ctx, t); return now != nil && now.steps["none"] > s.steps["none"] })
	l.follows(ctx, t)
	load.allAnswered(t)
}

// losesLeader: callers keep their table until the one that stood by serves.
func (l *lab) losesLeader(ctx context.Context, t *testing.T, load *traffic) {
	was := l.leads(ctx, t)
	l.kill(ctx, t, metav1.ListOptions{FieldSelector: "metadata.name=" + was.pod})
	killed := time.Now()
	l.keeps(ctx, t, was.table)
	until(ctx, t, "leader", func() bool { s := l.leader(ctx, t); return s != nil && s.pod != was.pod && s.steps["none"] > 0 })
	t.Logf("new leader with a table %v after the old one was killed", time.Since(killed).Round(time.Second))
	lease, err := l.client.CoordinationV1().Leases(shop).Get(ctx, "heart", metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, *lease.Spec.HolderIdentity, l.leads(ctx, t).pod)
	l.moves(ctx, t, 2, was.table)
	t.Logf("callers follow it %v after", time.Since(killed).Round(time.Second))
	load.allAnswered(t)
}

// losesWorker: n3 has b3 and nothing else. Callers leave it out as soon as its
// connections are dead, and the table as soon as Kubernetes does.
func (l *lab) losesWorker(ctx context.Context, t *testing.T, load *traffic) {
	const b3 = 4
	gone := l.group(b3)
	undo, err := cluster.Fault(ctx, "n3", kind.Kill)
	require.NoError(t, err)
	killed := time.Now()
	load.take()
	until(ctx, t, "answers to all requests of a few seconds", func() bool {
		if live.Pause(ctx, 2*period) != nil {
			return false
		}
		offered, answered, _ := load.take()
		return offered > 0 && answered == offered
	})
	t.Logf("all requests are answered %v after the node was killed", time.Since(killed).Round(time.Second))
	var s *said
	until(ctx, t, "table without its replica", func() bool { s = l.leader(ctx, t); return s != nil && len(s.table) > 0 && s.table.of(gone) == 0 })
	t.Logf("no table has it %v after", time.Since(killed).Round(time.Second))
	l.follows(ctx, t)
	require.NoError(t, undo(ctx))
	until(ctx, t, "table with its replica", func() bool { s = l.leader(ctx, t); return s != nil && s.table.of(gone) > 0 })
	require.NoError(t, l.workloads.Await(ctx)) // it may have another address
	l.follows(ctx, t)
}

// losesAll: no controller for a while, and then one without memory.
func (l *lab) losesAll(ctx context.Context, t *testing.T, load *traffic) {
	was := l.leads(ctx, t)
	load.take()
	l.kill(ctx, t, heartPods)
	killed := time.Now()
	l.keeps(ctx, t, was.table)
	until(ctx, t, "controller with a table", func() bool { s := l.leader(ctx, t); return s != nil && s.pod != was.pod && s.steps["none"] > 0 })
	t.Logf("a table again %v after all were killed", time.Since(killed).Round(time.Second))
	l.moves(ctx, t, 3, was.table)
	load.allAnswered(t)
}

// heartPods are those of the chart.
var heartPods = metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=heart"}

// routesByIstio upgrades heart to write Istio's objects and to observe CPU time
// through the kubelets. There is no Envoy here that would read the objects.
func (l *lab) routesByIstio(ctx context.Context, t *testing.T, _ *traffic) {
	file, err := istiotest.Definitions(ctx)
	testbedtest.Require(t, "kind", err)
	manifest, err := os.Open(file)
	require.NoError(t, err)
	defer manifest.Close()
	var definitions chart.Release
	require.NoError(t, definitions.Read(manifest))
	require.NoError(t, definitions.Install(ctx, l.dynamic))

	l.settings = fmt.Sprintf(`calls: [{from: a, to: b}]
componentLabel: %s
router: istio
period: %v
maxAge: 60s
prometheus:
  address: %s
  window: 45s
  cpu: {preset: cadvisor, match: {namespace: %s}}
  requests: {preset: heartbed}
`, kube.ComponentLabel, period, l.observed, shop)
	l.installHeart(ctx, t, 2)
	until(ctx, t, "objects of Istio", func() bool {
		written := l.written(ctx, t)
		return slices.Contains(written, "VirtualService/heart-b") && slices.Contains(written, "DestinationRule/heart-b")
	})
	pod, err := l.client.CoreV1().Pods(shop).Get(ctx, "b3", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.Spec.NodeName, pod.Labels[istio.NodeLabel])
}

// written lists all objects in the namespace that heart has written to, but
// for events, which the API server drops by itself.
func (l *lab) written(ctx context.Context, t *testing.T) (names []string) {
	kinds, err := discovery.ServerPreferredNamespacedResources(l.client.Discovery())
	require.NoError(t, err)
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		require.NoError(t, err)
		for _, kind := range group.APIResources {
			if !slices.Contains(kind.Verbs, "list") || kind.Name == "events" {
				continue
			}
			list, err := l.dynamic.Resource(version.WithResource(kind.Name)).Namespace(shop).List(ctx, metav1.ListOptions{})
			require.NoError(t, err, kind.Name)
			for _, u := range list.Items {
				if slices.ContainsFunc(u.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "heart" }) {
					names = append(names, kind.Kind+"/"+u.GetName())
				}
			}
		}
	}
	return names
}

// resets: the chart is uninstalled, and heart takes away all that it wrote.
func (l *lab) resets(ctx context.Context, t *testing.T, load *traffic) {
	load.take()
	t.Logf("heart has written %v", l.written(ctx, t))
	require.NoError(t, l.heart.Uninstall(ctx, l.dynamic))
	until(ctx, t, "end of heart", func() bool {
		pods, err := l.client.CoreV1().Pods(shop).List(ctx, heartPods)
		return err == nil && len(pods.Items) == 0
	})
	file := l.folder + "/heart.yaml"
	require.NoError(t, os.WriteFile(file, []byte("namespace: "+shop+"\n"+l.settings), 0o600))
	// Its rights went with it, so that it could not give the lease back: the
	// reset is refused until that has lapsed.
	var said []byte
	until(ctx, t, "reset", func() (done bool) {
		var err error
		said, err = exec.CommandContext(ctx, l.program("heart"), "reset", "--kubeconfig", l.kubeconfig, "--config", file).CombinedOutput()
		if err != nil {
			require.Contains(t, string(said), "holds the lease")
		}
		return err == nil
	})
	t.Logf("heart reset:\n%s", said)
	require.Empty(t, l.written(ctx, t))
	pods, err := l.client.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, pod := range pods.Items {
		require.False(t, hasOurs(pod), "labels of pod %s: %v", pod.Name, pod.Labels)
	}
	load.allAnswered(t)
}

func hasOurs(pod corev1.Pod) bool {
	for name := range pod.Labels {
		if strings.HasPrefix(name, strings.Split(istio.NodeLabel, "/")[0]+"/") {
			return true
		}
	}
	return false
}
