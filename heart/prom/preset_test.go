package prom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

// cadvisor is what the kubelet's cAdvisor shows of a pod with an application
// and a sidecar: each container, and the same CPU time again in the rows of
// the pod, of its pause container and of the groups above, which say whose
// they are only in part.
func cadvisor(pod string, app, sidecar float64, at time.Time) string {
	row := func(labels string, cpu float64) string {
		return fmt.Sprintf("container_cpu_usage_seconds_total{cpu=\"total\",%s} %g %d\n", labels, cpu, at.UnixMilli())
	}
	named := func(container, id string) string {
		return fmt.Sprintf(`container=%q,id="/kubepods/burstable/pod-%s/%s",image="localhost/x",name=%q,namespace="shop",pod=%q`, container, pod, id, id, pod)
	}
	return row(named("app", pod+"-app"), app) + row(named("sidecar", pod+"-sidecar"), sidecar) +
		row(named("POD", pod+"-pause"), 0.1) +
		row(fmt.Sprintf(`container="",id="/kubepods/burstable/pod-%s",image="",name="",namespace="shop",pod=%q`, pod, pod), app+sidecar)
}

// above are the rows of a node's groups, without the label of a pod.
func above(cpu float64, at time.Time) string {
	text := ""
	for _, id := range []string{"/", "/kubepods", "/kubepods/burstable", "/system.slice"} {
		text += fmt.Sprintf("container_cpu_usage_seconds_total{container=\"\",cpu=\"total\",id=%q,image=\"\",name=\"\",namespace=\"\",pod=\"\"} %g %d\n", id, cpu, at.UnixMilli())
	}
	return text
}

// istio is what a callee's proxy shows.
func istio(pod, source, code string, n float64) string {
	labels := `reporter=%q,source_canonical_service=%q,source_workload=%q,destination_canonical_service="b",response_code=%q,grpc_response_status="",response_flags="-",connection_security_policy="mutual_tls",request_protocol="http",namespace="shop",pod=%q`
	text := fmt.Sprintf("istio_requests_total{"+labels+"} %g\n", "destination", source, source+"-v1", code, pod, n)
	// The pod's own calls, which its proxy reports as their source.
	return text + fmt.Sprintf("istio_requests_total{"+labels+"} %g\n", "source", "b", "b-v1", code, pod, 1000+n)
}

// google/cadvisor#3235, kubernetes/kubernetes#96980: parent rows are not
// counted again. The containers of a pod are read at times of their own.
func TestCAdvisorAndIstio(t *testing.T) {
	p := prometheus(t)
	kubelet, proxies := p.exporter(t), p.exporter(t)
	var pages []string
	for i := range 15 {
		n := float64(10 * i)
		pages = append(pages, istio("b1", "a", "200", n)+istio("b1", "a", "503", 3*n)+istio("b1", "unknown", "200", n/10)+
			strings.ReplaceAll(istio("b1", "a", "200", n/5), `grpc_response_status=""`, `grpc_response_status="14"`))
	}
	proxies.play(pages...)
	proxies.played(t)
	page := func(i float64) string {
		at := time.Now().Add(time.Duration((i - 3) * float64(time.Second)))
		return cadvisor("b1", i, i/2, at) + cadvisor("b2", 10*i, 5*i, at.Add(-300*time.Millisecond)) + above(100*i, at)
	}
	kubelet.play(page(0.6), page(1.7), page(2.8))
	kubelet.played(t)
	o := observe(t, p.config(t, "cadvisor", "istio"))
	rate := 1 / o.Window.Seconds()
	require.InDelta(t, 1.5, o.Replicas["b1"].CPUSeconds*rate, 0.01, "of the containers only")
	answered := 11 / every.Seconds() // a second: 10 and 1 good answers a scrape
	require.InEpsilon(t, answered, o.Replicas["b1"].Requests*rate, 0.1)
	require.InEpsilon(t, answered*10/11, o.Calls[heart.Call{From: "a", To: "b"}]*rate, 0.1)
	// b2 has CPU time, but no proxy speaks of it: that is not idle.
	require.NotContains(t, o.Replicas, "b2")
	require.Contains(t, o.Warnings, "absent: requests: no series: a1, a2, b2")
}

// A container that was started again is a new series that counts from zero.
func TestContainerStartedAgain(t *testing.T) {
	p := prometheus(t)
	kubelet, proxy := p.exporter(t), p.exporter(t)
	proxy.hold(istio("b1", "a", "200", 5))
	proxy.wait(t, 8)
	at := func(i int) time.Time { return time.Now().Add(time.Duration(i-4) * every) }
	again := func(page string) string { return strings.ReplaceAll(page, "b1-app", "b1-again") }
	kubelet.play(cadvisor("b1", 50, 1, at(0)), cadvisor("b1", 52, 1, at(1)), again(cadvisor("b1", 3, 1, at(2))), again(cadvisor("b1", 4, 1, at(3))))
	kubelet.played(t)
	o := observe(t, p.config(t, "cadvisor", "istio"))
	require.InEpsilon(t, (2+3+1)/(3*every.Seconds()), o.Replicas["b1"].CPUSeconds/o.Window.Seconds(), 0.01)
}

// google/cadvisor#3687, k3s-io/k3s#473: rows without the labels of their
// containers are a fault, never an idle pod.
func TestNoLabelsIsNoIdlePod(t *testing.T) {
	p := prometheus(t)
	kubelet, proxy := p.exporter(t), p.exporter(t)
	proxy.hold(istio("b1", "a", "200", 5))
	kubelet.hold("container_cpu_usage_seconds_total{cpu=\"total\",id=\"/kubepods/pod1\"} 7\n")
	kubelet.wait(t, 2)
	c := p.config(t, "cadvisor", "istio")
	err := refused(t, c)
	require.ErrorContains(t, err, "of container_cpu_usage_seconds_total, but none has the labels asked for")
	require.ErrorContains(t, err, "at "+p.URL)

	// The user's own query shows them, but they name no replica.
	c.CPU = Query{Counter: fmt.Sprintf("container_cpu_usage_seconds_total{case=%q}", t.Name()), Labels: Labels{Replica: "pod"}}
	require.ErrorContains(t, refused(t, c), "none of 1 series has the label pod that is to name the replica")

	// One node has no labels, another has.
	other := p.exporter(t)
	other.hold("container_cpu_usage_seconds_total{cpu=\"total\",id=\"/kubepods/pod2\",pod=\"b1\"} 7\n")
	other.wait(t, 3)
	o := observe(t, c)
	require.Contains(t, o.Replicas, "b1")
	require.NotContains(t, o.Replicas, "b2")
	require.Contains(t, o.Warnings, "cpu: left out 1 series without the label pod")
}

// Selectors of counters and PromQL give the same as the preset.
func TestQueriesOfTheUser(t *testing.T) {
	p := prometheus(t)
	e := p.exporter(t)
	cpu, n := 0.0, 0.0
	var pages []string
	for range 15 {
		pages = append(pages, ourPage("b1", cpu, map[string]float64{"a1": n, "a2": 2 * n})+ourPage("b2", cpu, nil))
		cpu, n = cpu+0.1, n+10
	}
	e.play(pages...)
	e.played(t)
	c := p.config(t, ours, ours)
	want := observe(t, c)
	perSecond := want.Replicas["b1"].Requests / want.Window.Seconds()
	require.InEpsilon(t, 30/every.Seconds(), perSecond, 0.1)

	mine := fmt.Sprintf("{case=%q}", t.Name())
	labels := Labels{Replica: "replica", CallerReplica: "caller_replica"}
	c.CPU = Query{Counter: "heartbed_cpu_seconds_total" + mine, Labels: Labels{Replica: "replica"}}
	c.Requests = Query{Counter: "heartbed_requests_total" + mine, Labels: labels}
	got := observe(t, c)
	require.InDelta(t, want.Replicas["b1"].CPUSeconds, got.Replicas["b1"].CPUSeconds, 1e-9)
	require.InDelta(t, want.Replicas["b1"].Requests, got.Replicas["b1"].Requests, 1e-9)
	require.Equal(t, want.Window, got.Window)
	require.NotContains(t, got.Replicas, "b2", "whether it was idle, such a query cannot tell")

	c.Window = model.Duration(2 * time.Second)
	c.Requests = Query{PromQL: "sum by (replica, caller_replica) (increase(heartbed_requests_total" + mine + "[$window]))", Labels: labels}
	got = observe(t, c)
	require.InEpsilon(t, perSecond, got.Replicas["b1"].Requests/got.Window.Seconds(), 0.15)
	require.InDelta(t, got.Replicas["b1"].Requests, got.Calls[heart.Call{From: "a", To: "b"}], 1e-9)

	c.CPU = Query{PromQL: "increase(heartbed_cpu_seconds_total" + mine + "[$window]) * NaN", Labels: Labels{Replica: "replica"}}
	require.ErrorContains(t, refused(t, c), "cpu: below zero or no finite number: b1, b2")

	c.CPU = Query{PromQL: "heartbed_cpu_seconds_total" + mine + "[$window]", Labels: Labels{Replica: "replica"}}
	require.ErrorContains(t, refused(t, c), "found a matrix, expected a vector")
}

// The user's PromQL may not count a replica twice either.
func TestDuplicatesInPromQL(t *testing.T) {
	p := prometheus(t)
	one, other := p.exporter(t), p.exporter(t)
	one.hold(ourPage("b1", 1, nil) + ourPage("b2", 1, nil))
	other.hold(ourPage("b1", 1, nil))
	one.wait(t, 3)
	other.wait(t, 3)
	c := p.config(t, ours, ours)
	c.CPU = Query{PromQL: fmt.Sprintf("increase(heartbed_cpu_seconds_total{case=%q}[$window])", t.Name()), Labels: Labels{Replica: "replica"}}
	c.Requests = c.CPU
	o := observe(t, c)
	require.Contains(t, o.Replicas, "b2")
	require.NotContains(t, o.Replicas, "b1")
	require.Contains(t, strings.Join(o.Warnings, "\n"), "absent: cpu: two series count the same (instance=")
	require.Empty(t, o.Calls, "nothing says who calls")
}
