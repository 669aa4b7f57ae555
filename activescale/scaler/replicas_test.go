package scaler

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// realPod is a pod of testdata/hpa.json; times are ages in seconds.
type realPod struct {
	Age, ChangedAgo, SampleAgo, Window int
	Pending, Ready                     bool
	Milli                              *int64
}

type realCase struct {
	Kind            string
	Target, Request int64
	Current         int
	Total           int64
	Pods            []realPod
	Replicas        *int // nil = an error
}

// vectors are what Kubernetes' own code answered to random questions; see
// testdata/README.md.
func vectors(t *testing.T) (v struct {
	Replicas []realCase
	Limits   []limitCase
}) {
	raw, err := os.ReadFile("testdata/hpa.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &v))
	require.NotEmpty(t, v.Replicas)
	require.NotEmpty(t, v.Limits)
	return v
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func TestReplicasAreThoseOfKubernetes(t *testing.T) {
	rule := ratio{tolerance: DefaultTolerance}
	for i, c := range vectors(t).Replicas {
		v := View{Replicas: c.Current}
		samples := map[int]sample{}
		for id, p := range c.Pods {
			v.Pods = append(v.Pods, Pod{ID: id, Created: -seconds(p.Age), Pending: p.Pending, Ready: p.Ready, Changed: -seconds(p.ChangedAgo)})
			if p.Milli != nil {
				samples[id] = sample{milli: *p.Milli, at: -seconds(p.SampleAgo), window: seconds(p.Window)}
			}
		}
		var replicas int
		ok := true
		switch c.Kind {
		case "cpu":
			replicas, ok = rule.cpu(v, samples, int(c.Target), float64(c.Request)/1000)
		case "active":
			replicas, ok = rule.active(v, samples, float64(c.Target)/1000)
		default:
			replicas = rule.external(c.Current, c.Total, c.Target)
		}
		require.Equalf(t, c.Replicas != nil, ok, "case %d: %+v", i, c)
		if ok {
			require.Equalf(t, *c.Replicas, replicas, "case %d: %+v", i, c)
		}
	}
}

// pods makes old, ready pods with the given metric, thousandths; -1 = none.
func pods(milli ...int64) (View, map[int]sample) {
	v := View{Replicas: len(milli)}
	samples := map[int]sample{}
	for id, m := range milli {
		v.Pods = append(v.Pods, Pod{ID: id, Created: -time.Hour, Ready: true, Running: true, Changed: -time.Hour})
		if m >= 0 {
			samples[id] = sample{milli: m}
		}
	}
	return v, samples
}

func TestActiveRequestsToReplicas(t *testing.T) {
	rule := ratio{tolerance: DefaultTolerance}
	check := func(want int, milli ...int64) {
		t.Helper()
		v, samples := pods(milli...)
		got, ok := rule.active(v, samples, 10)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	check(2, 11000, 11000)     // 1.1: still within the tolerance
	check(3, 11010, 11010)     // above
	check(2, 9000, 9000)       // 0.9
	check(2, 8999, 9000)       // floor((8999+9000)/2) = 8999: ceil(1.8)
	check(5, 41000)            // the TC2 sample: 1 to 5 at 200 requests a second
	check(3, 30000, -1)        // out: the missing pod counts as 0
	check(2, 2000, -1)         // in: it counts as the target, 1.2 of 2 pods
	check(0, 0, 0, 0)          // explicit zeros: nothing is needed, before the HPA's minimum
	_, samples := pods(-1, -1) // nobody has a metric: an error, not a zero
	v, _ := pods(-1, -1)
	_, ok := rule.active(v, samples, 10)
	require.False(t, ok)
}

// The TC2 sample of activescale: at 600 requests a second four old pods at
// three times their target and two that have just become ready make 12, at 800
// eight at twice the target and two new ones make 16.
func TestCPUOfNewPodsDampsTheNextStep(t *testing.T) {
	rule := ratio{tolerance: DefaultTolerance}
	check := func(want, old, young int, percent int64) {
		t.Helper()
		v, samples := pods(make([]int64, old+young)...)
		v.Now = time.Hour
		for i := range v.Pods {
			samples[i] = sample{milli: percent * 350 / 100, at: v.Now - 5*time.Second, window: 15 * time.Second}
			if i >= old {
				v.Pods[i].Created, v.Pods[i].Changed = v.Now-20*time.Second, v.Now-10*time.Second
			}
		}
		got, ok := rule.cpu(v, samples, 60, 0.35)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	check(12, 4, 2, 171) // 150 requests a second of 4 ms are 600 of 350 millicores
	check(16, 8, 2, 114)
}
