package provider

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"heartbed/activescale/store"
)

func TestCapacityWeighted(t *testing.T) {
	onNode := func(costs map[string]float64) func(*corev1.Pod) (float64, bool) {
		return func(pod *corev1.Pod) (float64, bool) {
			cost, ok := costs[pod.Spec.NodeName]
			return cost, ok
		}
	}
	for name, c := range map[string]struct {
		pods map[string][2]string // node and annotation, by pod; each has 12 requests
		cost func(*corev1.Pod) (float64, bool)
		want map[string]int64
		bad  float64
	}{
		"nobody tells": {
			pods: map[string][2]string{"a": {"n1", ""}, "b": {"n2", ""}},
			want: map[string]int64{"a": 12000, "b": 12000},
		},
		"equal nodes cancel out": {
			pods: map[string][2]string{"a": {"n1", ""}, "b": {"n1", ""}}, cost: onNode(map[string]float64{"n1": 7}),
			want: map[string]int64{"a": 12000, "b": 12000},
		},
		"one node is three times as slow": {
			pods: map[string][2]string{"a": {"n1", ""}, "b": {"n2", ""}}, cost: onNode(map[string]float64{"n1": 1, "n2": 3}),
			want: map[string]int64{"a": 6000, "b": 18000},
		},
		"the pod's word counts more than the node's": {
			pods: map[string][2]string{"a": {"n1", "1"}, "b": {"n1", "3"}}, cost: onNode(map[string]float64{"n1": 100}),
			want: map[string]int64{"a": 6000, "b": 18000},
		},
		"who does not tell is 1": {
			pods: map[string][2]string{"a": {"n1", ""}, "b": {"n2", "3"}},
			want: map[string]int64{"a": 6000, "b": 18000},
		},
		"bad annotations are as if not told": {
			pods: map[string][2]string{"a": {"n1", "-1"}, "b": {"n2", "fast"}}, cost: onNode(map[string]float64{"n1": 1, "n2": 3}),
			want: map[string]int64{"a": 6000, "b": 18000}, bad: 2,
		},
		"bad nodes too": {
			pods: map[string][2]string{"a": {"n1", ""}, "b": {"n2", ""}, "c": {"n3", ""}},
			cost: onNode(map[string]float64{"n1": 0, "n2": math.NaN(), "n3": math.Inf(1)}),
			want: map[string]int64{"a": 12000, "b": 12000, "c": 12000}, bad: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster()
			for pod, where := range c.pods {
				cl.pod(t, pod, func(p *corev1.Pod) {
					p.Spec.NodeName = where[0]
					if where[1] != "" {
						p.Annotations = map[string]string{CostAnnotation: where[1]}
					}
				})
				cl.push(t, pod, active(12))
			}
			o := cl.options()
			o.Cost, o.Registerer = c.cost, prometheus.NewRegistry()
			p := New(o)
			got, err := ask(t, p, CapacityWeightedActiveRequests)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.bad, testutil.ToFloat64(p.m.badCosts))
			plain, err := ask(t, p, store.InboundActiveRequests)
			require.NoError(t, err)
			for pod, v := range plain {
				require.Equal(t, int64(12000), v, pod)
			}
		})
	}
}

// The mean is over the pods that can push, silent ones too: a pod that misses a
// flush must not change the weight of the others.
func TestWeightsDoNotHangOnSamples(t *testing.T) {
	c := newCluster()
	p := New(c.options())
	c.pod(t, "a", annotated("1"))
	c.pod(t, "silent", annotated("3"))
	c.pod(t, "pending", annotated("900"), phase(corev1.PodPending))
	c.push(t, "a", active(12))
	got, err := ask(t, p, CapacityWeightedActiveRequests)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": 6000}, got)
}

func TestParseCost(t *testing.T) {
	for text, want := range map[string]float64{"1": 1, "0.001": 0.001, "1000": 1000, "2.5e0": 2.5, "0x1p1": 2} {
		got, err := ParseCost(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", " 1", "0", "-1", "NaN", "Inf", "1001", "0.0009", "1,5", "1 2", "1e400", "100m"} {
		_, err := ParseCost(text)
		require.ErrorContains(t, err, fmt.Sprintf("cost %q is no number between 0.001 and 1000", text))
	}
}

func FuzzParseCost(f *testing.F) {
	f.Add("1.5")
	f.Add("1e-3")
	f.Fuzz(func(t *testing.T, text string) {
		if cost, err := ParseCost(text); err == nil && !(cost >= minCost && cost <= maxCost) {
			t.Fatalf("%q is a cost of %v", text, cost)
		}
	})
}
