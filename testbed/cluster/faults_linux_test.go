package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

// another is a backend on the lab in a namespace of its own.
func another(t *testing.T, namespace string) *Backend {
	t.Helper()
	o := liveBackend(t).Options
	o.Namespace, o.Journals = namespace, t.TempDir()
	b := &Backend{Options: o}
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func requireGone(t *testing.T, b *Backend) {
	t.Helper()
	tg, err := b.Options.target()
	require.NoError(t, err)
	_, err = tg.client.CoreV1().Namespaces().Get(t.Context(), tg.namespace, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "namespace %s: %v", tg.namespace, err)
	require.NoError(t, CheckClean(b.Options.Journals))
}

func TestImageThatNoNodeCanGet(t *testing.T) {
	b := another(t, "no-image")
	b.Options.Image = "localhost/heartbed/nowhere:1"
	_, err := b.Start(t.Context(), testbedtest.Plan())
	require.ErrorContains(t, err, "wait for the agents: image localhost/heartbed/nowhere:1: node ")
	require.ErrorContains(t, err, "cannot get it: ")
	requireGone(t, b)
}

// disturbed is how a run ends that something is done to.
func disturbed(t *testing.T, b *Backend, disturb func()) error {
	t.Helper()
	p := testbedtest.Plan()
	p.Timing.Duration = workloads.Duration(2 * time.Minute)
	s, err := b.Start(t.Context(), p)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Route(t.Context(), testbedtest.Table(1, 1)))
	steps := 0
	_, err = s.Run(t.Context(), func(context.Context) error {
		if steps++; steps == 3 {
			disturb()
		}
		return nil
	})
	return err
}

// A run whose load generator goes away is none, says so, and the next works.
func TestLostLoadGenerator(t *testing.T) {
	b := another(t, "lost-load")
	err := disturbed(t, b, func() {
		now := int64(0)
		pods := b.kept.client.CoreV1().Pods("lost-load")
		require.NoError(t, pods.Delete(t.Context(), loadAgent, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	})
	require.ErrorContains(t, err, "run session: ")
	require.Regexp(t, "pod heartbed-load was deleted|connection to the cluster was lost|container of pod heartbed-load ended", err.Error())
	s, err := b.Start(t.Context(), testbedtest.Plan())
	require.NoError(t, err, "the agents are made anew")
	require.NoError(t, s.Close())
}

// An API server that starts again cuts the way to the agents: the run is none.
// It is waited for, so that nothing is left, and the next run works.
func TestAPIServerRestarts(t *testing.T) {
	b := another(t, "restart")
	err := disturbed(t, b, func() {
		node := strings.TrimPrefix(b.kept.context, "kind-") + "-control-plane"
		said, err := exec.Command("docker", "exec", node, "pkill", "-KILL", "-f", "^kube-apiserver").CombinedOutput()
		require.NoError(t, err, string(said))
	})
	require.ErrorContains(t, err, "the connection to the cluster was lost: heartbed-")
	s, err := b.Start(t.Context(), testbedtest.Plan())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, b.Close())
	requireGone(t, b)
}

// What a killed run left in the cluster is found by its journal: the same one
// as this run's, of a process that does not exist.
func TestDownAfterKill(t *testing.T) {
	b := another(t, "killed")
	s, err := b.Start(t.Context(), testbedtest.Plan())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	dir := t.TempDir()
	raw, err := os.ReadFile(b.kept.journal.Path)
	require.NoError(t, err)
	raw = bytes.Replace(raw, fmt.Appendf(nil, `"pid":%d`, os.Getpid()), []byte(`"pid":1073741824`), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, b.kept.run+".jsonl"), raw, 0o600))
	done, err := Down(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, []live.Removed{{Run: b.kept.run, Changes: 1}}, done)
	require.NoError(t, b.Close(), "what is gone already is no error")
	requireGone(t, b)
}

// A plan with a node that the cluster does not have leaves nothing.
func TestTooFewNodes(t *testing.T) {
	b := another(t, "few")
	p := testbedtest.Plan()
	p.Nodes = append(p.Nodes, testbed.Node{Name: "n4", Cores: 1, Slowness: 1})
	p.RTT = [][]time.Duration{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}
	require.ErrorIs(t, b.Fits(t.Context(), p), ErrInput)
	_, err := b.Start(t.Context(), p)
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "nodes: no node has the label heartbed/node=n4")
	requireGone(t, b)
}

// A node that is full is said as soon as the scheduler is sure.
func TestFullNode(t *testing.T) {
	b := another(t, "full")
	tg, err := b.Options.target()
	require.NoError(t, err)
	pods := tg.client.CoreV1().Pods("default")
	big := pod("big", nil)
	big.Spec.NodeSelector = map[string]string{NodeLabel: "n1"}
	big.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("900m")}
	_, err = pods.Create(t.Context(), big, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pods.Delete(context.Background(), "big", metav1.DeleteOptions{})) })
	_, err = b.Start(t.Context(), testbedtest.Plan())
	require.ErrorContains(t, err, "Insufficient cpu")
	require.ErrorContains(t, err, "is Pending")
	require.NotContains(t, err.Error(), "gave up")
}
