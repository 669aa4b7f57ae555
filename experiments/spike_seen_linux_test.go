package experiments_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"heartbed/testbed"
)

// replicaWatch notes when the replicas of the rivals change, and what their HPAs
// say meanwhile.
type replicaWatch struct {
	end         func()
	pods        corelisters.PodNamespaceLister
	deployments appslisters.DeploymentNamespaceLister
	hpas        autoscalinglisters.HorizontalPodAutoscalerNamespaceLister

	mu    sync.Mutex
	seen  map[string][]sighting
	heard map[string][]statement
}

// sighting is the replicas of a rival from a moment on.
type sighting struct {
	at                  time.Time
	wanted, pods, ready int
}

// statement is what an HPA said from a moment on.
type statement struct {
	at      time.Time
	value   string // of its metric; "" = none
	percent int32  // the value, of CPU
	desired int32
	active  corev1.ConditionStatus // ScalingActive
	reason  string
}

func watchReplicas(ctx context.Context, t *testing.T, client kubernetes.Interface) *replicaWatch {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(spikeSpace))
	w := &replicaWatch{
		pods:        factory.Core().V1().Pods().Lister().Pods(spikeSpace),
		deployments: factory.Apps().V1().Deployments().Lister().Deployments(spikeSpace),
		hpas:        factory.Autoscaling().V2().HorizontalPodAutoscalers().Lister().HorizontalPodAutoscalers(spikeSpace),
		seen:        map[string][]sighting{}, heard: map[string][]statement{},
	}
	w.end = sync.OnceFunc(func() {
		cancel()
		factory.Shutdown()
	})
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.note() }, UpdateFunc: func(any, any) { w.note() }, DeleteFunc: func(any) { w.note() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Pods().Informer(), factory.Apps().V1().Deployments().Informer(), factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer(),
	} {
		_, err := informer.AddEventHandler(changed)
		require.NoError(t, err)
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		require.True(t, synced, "watch %v", kind)
	}
	return w
}

// note keeps what has changed.
func (w *replicaWatch) note() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, name := range rivals {
		if s, there := w.sight(name); there {
			s.at = now
			if last := len(w.seen[name]) - 1; last < 0 || w.seen[name][last] != s.since(w.seen[name][last].at) {
				w.seen[name] = append(w.seen[name], s)
			}
		}
		if s, there := w.hear(name); there {
			s.at = now
			if last := len(w.heard[name]) - 1; last < 0 || w.heard[name][last] != s.since(w.heard[name][last].at) {
				w.heard[name] = append(w.heard[name], s)
			}
		}
	}
}

func (s sighting) since(at time.Time) sighting   { s.at = at; return s }
func (s statement) since(at time.Time) statement { s.at = at; return s }

func (w *replicaWatch) sight(name string) (s sighting, there bool) {
	d, err := w.deployments.Get(name)
	if err != nil {
		return s, false // not there yet
	}
	pods, err := w.pods.List(labels.SelectorFromSet(labels.Set{"app": name}))
	if err != nil {
		return s, false
	}
	s.wanted = wanted(d)
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		s.pods++
		if podReady(p) {
			s.ready++
		}
	}
	return s, true
}

// podReady says whether a pod is ready and not on its way out.
func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func wanted(d *appsv1.Deployment) int {
	if d.Spec.Replicas == nil {
		return 1
	}
	return int(*d.Spec.Replicas)
}

func (w *replicaWatch) hear(name string) (s statement, there bool) {
	h, err := w.hpas.Get(name)
	if err != nil {
		return s, false
	}
	s.desired = h.Status.DesiredReplicas
	for _, m := range h.Status.CurrentMetrics {
		switch {
		case m.Pods != nil && m.Pods.Current.AverageValue != nil:
			s.value = m.Pods.Current.AverageValue.String()
		case m.Resource != nil && m.Resource.Current.AverageUtilization != nil:
			s.percent = *m.Resource.Current.AverageUtilization
			s.value = fmt.Sprintf("%d%%", s.percent)
		}
	}
	for _, c := range h.Status.Conditions {
		if c.Type == autoscalingv2.ScalingActive {
			s.active, s.reason = c.Status, c.Reason
		}
	}
	return s, true
}

// now is the replicas and the words of a rival's HPA.
func (w *replicaWatch) now(name string) (s sighting, h statement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.seen[name]); n > 0 {
		s = w.seen[name][n-1]
	}
	if n := len(w.heard[name]); n > 0 {
		h = w.heard[name][n-1]
	}
	return s, h
}

// points are the replicas of a rival since a moment.
func (w *replicaWatch) points(name string, since time.Time) (points []testbed.ScalePoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen[name] {
		p := testbed.ScalePoint{At: max(0, s.at.Sub(since)), Wanted: s.wanted, Pods: s.pods, Ready: s.ready}
		if p.At == 0 {
			points = points[:0] // of those before, only the last counts
		}
		points = append(points, p)
	}
	return points
}

// fewest is the least number of replicas that a rival's HPA has wanted since a
// moment.
func (w *replicaWatch) fewest(name string, since time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	fewest := -1
	for i, s := range w.seen[name] {
		if i+1 < len(w.seen[name]) && w.seen[name][i+1].at.Before(since) {
			continue
		}
		if fewest < 0 || s.wanted < fewest {
			fewest = s.wanted
		}
	}
	return fewest
}

// words are those of a rival's HPA since a moment, for people.
func (w *replicaWatch) words(name string, since time.Time) (lines []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard[name] {
		if !h.at.Before(since) {
			lines = append(lines, fmt.Sprintf("%6.1f s: metric %s, wants %d, %s %s", h.at.Sub(since).Seconds(), h.value, h.desired, h.active, h.reason))
		}
	}
	return lines
}
