package provider

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/activescale/store"
)

// With the receiver cut off, the answer is an error within four flushes
// (kube-metrics-adapter issue 97: after 15 minutes elsewhere).
func TestSilenceIsNotFoundAfterFourFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flush = 5 * time.Second
		c := newCluster()
		c.pod(t, "a")
		p := New(c.options())
		for range 3 {
			c.push(t, "a", active(7))
			time.Sleep(flush)
		}
		// The last flush is one flush ago.
		for range 3 {
			got, err := ask(t, p, store.InboundActiveRequests)
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"a": 7000}, got)
			time.Sleep(flush)
		}
		_, err := ask(t, p, store.InboundActiveRequests)
		require.True(t, apierrors.IsNotFound(err), "%v", err)
		c.push(t, "a", active(8))
		got, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"a": 8000}, got)
	})
}

// kubernetes issues 84142, 90461, 72775, 123325, 87199: a rolling update under
// constant load scaled out to the maximum, because new pods had no value yet and
// those that ended still counted.
func TestRollingUpdateKeepsTheAverage(t *testing.T) {
	c := newCluster()
	p := New(c.options())
	const replicas, load = 5, 50.0
	for i := range replicas {
		c.pod(t, fmt.Sprint("old-", i))
		c.push(t, fmt.Sprint("old-", i), active(load/replicas))
	}
	for i := range replicas {
		// A new pod comes, waits, starts, and its proxy flushes before a request.
		name := fmt.Sprint("new-", i)
		c.pod(t, name, phase(corev1.PodPending))
		got, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.NotContains(t, got, name)
		c.pod(t, name)
		c.push(t, name, nil)
		got, err = ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.Contains(t, got, name)
		require.Zero(t, got[name], "idle is a value")
		require.LessOrEqual(t, average(got), int64(1000*load/replicas))
		// An old one ends; it still works on what it has, the new ones take over.
		c.pod(t, fmt.Sprint("old-", i), terminating)
		for j := range replicas {
			c.push(t, fmt.Sprint("old-", j), active(load/replicas))
			if j <= i {
				c.push(t, fmt.Sprint("new-", j), active(load/replicas))
			}
		}
		got, err = ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.Len(t, got, replicas)
		require.Equal(t, int64(1000*load/replicas), average(got))
	}
}

// A mean is known only if requests ended; its absence is no zero.
func TestMeanIsMissingWithoutRequests(t *testing.T) {
	c := newCluster()
	o := c.options()
	o.Mean = true
	p := New(o)
	c.pod(t, "a")
	c.push(t, "a", active(3))
	_, err := ask(t, p, store.InboundMeanRequests)
	require.True(t, apierrors.IsNotFound(err))
	c.push(t, "a", map[string]float64{store.InboundMeanRequests: 0})
	got, err := ask(t, p, store.InboundMeanRequests)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 0}, got)
}

func TestValuesKeepThousandths(t *testing.T) {
	c := newCluster()
	o := c.options()
	o.Registerer = prometheus.NewRegistry()
	p := New(o)
	c.pod(t, "a")
	for value, want := range map[float64]int64{0: 0, 0.0004: 0, 0.0005: 1, 1.9996: 2000, 12.345: 12345, 1e12: 1e15} {
		c.push(t, "a", active(value))
		got, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"a": want}, got, value)
	}
	for i, value := range []float64{-1, -1e-9, 1e16, math.MaxFloat64} {
		c.push(t, "a", active(value))
		_, err := ask(t, p, store.InboundActiveRequests)
		require.True(t, apierrors.IsNotFound(err), "%v", value)
		require.Equal(t, float64(i+1), testutil.ToFloat64(p.m.badValues))
	}
}

func TestOwnMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		o := c.options()
		r := prometheus.NewRegistry()
		o.Registerer = r
		p := New(o)
		c.pod(t, "a")
		c.pod(t, "b")
		_, err := ask(t, p, store.ActiveConnections)
		require.Error(t, err)
		c.push(t, "a", nil)
		time.Sleep(3 * time.Second)
		_, err = ask(t, p, store.ActiveConnections)
		require.NoError(t, err)
		c.push(t, "b", nil)
		_, err = ask(t, p, store.ActiveConnections)
		require.NoError(t, err)
		_, err = ask(t, p, "nonsense")
		require.Error(t, err)
		require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP activescale_queries_total Queries by result: all (every running pod has a value), some, none (404), unknown (404: no such metric or resource), unavailable (503), error.
# TYPE activescale_queries_total counter
activescale_queries_total{metric="active_connections",result="all"} 1
activescale_queries_total{metric="active_connections",result="none"} 1
activescale_queries_total{metric="active_connections",result="some"} 1
activescale_queries_total{metric="other",result="unknown"} 1
# HELP activescale_query_pods_missing_total Running pods that a query selected and had no value for.
# TYPE activescale_query_pods_missing_total counter
activescale_query_pods_missing_total{metric="active_connections"} 3
`), "activescale_queries_total", "activescale_query_pods_missing_total"))
		require.Equal(t, 6.0, ages(t, r), "3 s, 3 s and 0 s")
	})
}

// ages is the sum of all ages that were observed.
func ages(t *testing.T, r *prometheus.Registry) float64 {
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "activescale_query_sample_age_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleSum()
		}
	}
	t.Fatal("no ages")
	return 0
}

func TestTrimKeepsWhatIsRead(t *testing.T) {
	c := newCluster()
	p := New(c.options())
	pod := c.pod(t, "a", annotated("2"), func(pod *corev1.Pod) {
		pod.Annotations["else"] = strings.Repeat("a", 1000)
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		pod.Spec = corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}}
		pod.Status.Conditions = []corev1.PodCondition{{}}
	})
	trimmed, err := Trim(pod.DeepCopy())
	require.NoError(t, err)
	require.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{CostAnnotation: "2"}},
		Spec:       corev1.PodSpec{NodeName: "n1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}, trimmed)
	require.NoError(t, c.pods.Update(trimmed))
	c.pod(t, "b")
	c.push(t, "a", active(3))
	c.push(t, "b", active(3))
	got, err := ask(t, p, CapacityWeightedActiveRequests)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 4000, "b": 2000}, got)
	other, err := Trim("no pod")
	require.NoError(t, err)
	require.Equal(t, "no pod", other)
}
