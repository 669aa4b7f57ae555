//go:build ignore

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	pa "k8s.io/kubernetes/pkg/controller/podautoscaler"
	mc "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

type Pod struct {
	AgeSeconds int    `json:"age"`
	Pending    bool   `json:"pending,omitempty"`
	Ready      bool   `json:"ready,omitempty"`
	ChangedAgo int    `json:"changedAgo"`
	Milli      *int64 `json:"milli"`
	SampleAgo  int    `json:"sampleAgo"`
	Window     int    `json:"window"`
}
type Case struct {
	Kind     string `json:"kind"`
	Target   int64  `json:"target"`
	Request  int64  `json:"request,omitempty"`
	Current  int    `json:"current"`
	Total    int64  `json:"total,omitempty"`
	Pods     []Pod  `json:"pods,omitempty"`
	Replicas *int   `json:"replicas"`
}
type Change struct {
	Ago      int `json:"ago"`
	Replicas int `json:"replicas"`
}
type Policy struct {
	Pods    int `json:"pods,omitempty"`
	Percent int `json:"percent,omitempty"`
	Period  int `json:"period"`
}
type Rules struct {
	Stabilization int      `json:"stabilization"`
	Least         bool     `json:"least,omitempty"`
	Policies      []Policy `json:"policies"`
}
type Limit struct {
	Up       *Rules   `json:"up"`
	Down     *Rules   `json:"down"`
	Proposed []Change `json:"proposedBefore"`
	Out      []Change `json:"out"`
	In       []Change `json:"in"`
	Min      int      `json:"min"`
	Max      int      `json:"max"`
	Current  int      `json:"current"`
	Want     int      `json:"want"`
	Replicas int      `json:"replicas"`
}

type client struct {
	m     mc.PodMetricsInfo
	total int64
}

func (c client) GetResourceMetric(context.Context, v1.ResourceName, string, labels.Selector, string) (mc.PodMetricsInfo, time.Time, error) {
	return c.m, time.Now(), nil
}
func (c client) GetRawMetric(string, string, labels.Selector, labels.Selector) (mc.PodMetricsInfo, time.Time, error) {
	return c.m, time.Now(), nil
}
func (c client) GetObjectMetric(string, string, *autoscalingv2.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	return 0, time.Now(), nil
}
func (c client) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	return []int64{c.total}, time.Now(), nil
}

var rng = rand.New(rand.NewPCG(7, 7))

func one(kind string) Case {
	c := Case{Kind: kind, Target: int64(10000), Current: 1 + rng.IntN(8)}
	if kind == "cpu" {
		c.Target, c.Request = int64([]int{50, 60, 70, 120}[rng.IntN(4)]), 300
	}
	now := time.Now()
	ix := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	m := mc.PodMetricsInfo{}
	level := []float64{0.3, 0.8, 0.95, 1.05, 1.2, 2, 5}[rng.IntN(7)]
	for i := range c.Current {
		p := Pod{AgeSeconds: []int{5, 20, 100, 290, 1000}[rng.IntN(5)], Ready: rng.IntN(4) > 0, Window: []int{10, 15, 20}[rng.IntN(3)]}
		if p.AgeSeconds < 10 {
			p.Pending = rng.IntN(2) == 0
		}
		if p.Pending {
			p.Ready = false
		}
		p.ChangedAgo = []int{p.AgeSeconds, p.AgeSeconds / 2, min(p.AgeSeconds, 12)}[rng.IntN(3)]
		p.SampleAgo = rng.IntN(15)
		if rng.IntN(5) > 0 && !p.Pending {
			base := float64(c.Target)
			if kind == "cpu" {
				base = float64(c.Target*c.Request) / 100
			}
			x := int64(base * level * (0.8 + 0.4*rng.Float64()))
			p.Milli = &x
		}
		c.Pods = append(c.Pods, p)
		name := fmt.Sprintf("p%d", i)
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}}
		pod.Status.Phase = v1.PodRunning
		if p.Pending {
			pod.Status.Phase = v1.PodPending
		}
		start := metav1.NewTime(now.Add(-time.Duration(p.AgeSeconds)*time.Second - 500*time.Millisecond))
		pod.Status.StartTime = &start
		st := v1.ConditionFalse
		if p.Ready {
			st = v1.ConditionTrue
		}
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: st, LastTransitionTime: metav1.NewTime(now.Add(-time.Duration(p.ChangedAgo)*time.Second - 500*time.Millisecond))}}
		pod.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(300, resource.DecimalSI)}}}}
		ix.Add(pod)
		if p.Milli != nil {
			m[name] = mc.PodMetric{Value: *p.Milli, Timestamp: now.Add(-time.Duration(p.SampleAgo)*time.Second - 500*time.Millisecond), Window: time.Duration(p.Window) * time.Second}
		}
	}
	var total int64
	if kind == "external" {
		total = int64(level * float64(c.Target) * float64(c.Current) * (0.8 + 0.4*rng.Float64()))
		c.Total, c.Pods = total, nil
	}
	calc := pa.NewReplicaCalculator(client{m, total}, corelisters.NewPodLister(ix), 5*time.Minute, 30*time.Second)
	tol := pa.Within(0.1)
	var n int32
	var err error
	switch kind {
	case "cpu":
		n, _, _, _, err = calc.GetResourceReplicas(context.Background(), int32(c.Current), int32(c.Target), v1.ResourceCPU, tol, "n", labels.Everything(), "")
	case "active":
		n, _, _, err = calc.GetMetricReplicas(int32(c.Current), c.Target, "m", tol, "n", labels.Everything(), labels.Everything())
	case "external":
		n, _, _, err = calc.GetExternalPerPodMetricReplicas(int32(c.Current), c.Target, "m", tol, "n", &metav1.LabelSelector{})
	}
	if err == nil {
		r := int(n)
		c.Replicas = &r
	}
	return c
}

func changes(n int) []Change {
	out := []Change{}
	for range rng.IntN(n + 1) {
		out = append(out, Change{Ago: []int{3, 10, 20, 40, 70, 200, 400}[rng.IntN(7)], Replicas: 1 + rng.IntN(12)})
	}
	return out
}

func real(cs []Change) (out []pa.Ev) {
	for _, c := range cs {
		out = append(out, pa.Ev{Ago: time.Duration(c.Ago) * time.Second, Change: int32(c.Replicas)})
	}
	return out
}

func rules() (*Rules, *autoscalingv2.HPAScalingRules) {
	r := &Rules{Stabilization: []int{0, 0, 15, 60, 300}[rng.IntN(5)], Least: rng.IntN(3) == 0}
	s := int32(r.Stabilization)
	sel := autoscalingv2.MaxChangePolicySelect
	if r.Least {
		sel = autoscalingv2.MinChangePolicySelect
	}
	a := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &s, SelectPolicy: &sel}
	for range 1 + rng.IntN(2) {
		p := Policy{Period: []int{15, 30, 60}[rng.IntN(3)]}
		ap := autoscalingv2.HPAScalingPolicy{PeriodSeconds: int32(p.Period)}
		if rng.IntN(2) == 0 {
			p.Pods = 1 + rng.IntN(6)
			ap.Type, ap.Value = autoscalingv2.PodsScalingPolicy, int32(p.Pods)
		} else {
			p.Percent = []int{10, 30, 50, 100, 900}[rng.IntN(5)]
			ap.Type, ap.Value = autoscalingv2.PercentScalingPolicy, int32(p.Percent)
		}
		r.Policies = append(r.Policies, p)
		a.Policies = append(a.Policies, ap)
	}
	return r, a
}

func limit() Limit {
	l := Limit{Min: 1 + rng.IntN(2), Max: 10 + rng.IntN(20)}
	l.Current = l.Min + rng.IntN(l.Max-l.Min+1)
	l.Want = rng.IntN(40)
	l.Proposed, l.Out, l.In = changes(5), changes(3), changes(3)
	var b *autoscalingv2.HorizontalPodAutoscalerBehavior
	if rng.IntN(4) > 0 {
		b = &autoscalingv2.HorizontalPodAutoscalerBehavior{}
		l.Up, b.ScaleUp = rules()
		l.Down, b.ScaleDown = rules()
		for _, p := range l.Down.Policies {
			_ = p
		}
	} else {
		l.Out, l.In = []Change{}, []Change{}
	}
	l.Replicas = int(pa.Normalize(b, real(l.Proposed), real(l.Out), real(l.In), int32(l.Min), int32(l.Max), int32(l.Current), int32(l.Want)))
	return l
}

func main() {
	out := struct {
		Replicas []Case  `json:"replicas"`
		Limits   []Limit `json:"limits"`
	}{}
	for range 80 {
		out.Replicas = append(out.Replicas, one("cpu"), one("active"))
	}
	for range 20 {
		out.Replicas = append(out.Replicas, one("external"))
	}
	for range 120 {
		out.Limits = append(out.Limits, limit())
	}
	fmt.Println(`{"replicas": [`)
	for i, c := range out.Replicas {
		b, _ := json.Marshal(c)
		if i > 0 {
			fmt.Println(",")
		}
		os.Stdout.Write(b)
	}
	fmt.Println("\n],\n\"limits\": [")
	for i, c := range out.Limits {
		b, _ := json.Marshal(c)
		if i > 0 {
			fmt.Println(",")
		}
		os.Stdout.Write(b)
	}
	fmt.Println("\n]}")
}
