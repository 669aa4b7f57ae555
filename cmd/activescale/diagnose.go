package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
)

// proxyConfig is what matters here of Istio's ProxyConfig.
type proxyConfig struct {
	EnvoyMetricsService *struct {
		Address string `yaml:"address"`
	} `yaml:"envoyMetricsService"`
	ProxyStatsMatcher *struct {
		InclusionPrefixes []string `yaml:"inclusionPrefixes"`
		InclusionSuffixes []string `yaml:"inclusionSuffixes"`
		InclusionRegexps  []string `yaml:"inclusionRegexps"`
	} `yaml:"proxyStatsMatcher"`
}

// configAnnotation of a pod overrides the mesh's default, field by field.
const configAnnotation = "proxy.istio.io/config"

// oldAnnotations of a pod make Istio ignore its proxyStatsMatcher.
var oldAnnotations = []string{"sidecar.istio.io/statsInclusionPrefixes", "sidecar.istio.io/statsInclusionSuffixes", "sidecar.istio.io/statsInclusionRegexps"}

// suffixes of the names of the statistics that are of use: requests in flight,
// connections, and the time that requests take.
var suffixes = []string{"downstream_rq_active", "downstream_cx_active", "downstream_rq_time"}

// aGauge is one that a sidecar has for a container's port.
const aGauge = "http.inbound_0.0.0.0_8080;.downstream_rq_active"

func parseMesh(text string) (*proxyConfig, error) {
	var mesh struct {
		DefaultConfig proxyConfig `yaml:"defaultConfig"`
	}
	if err := yaml.Unmarshal([]byte(text), &mesh); err != nil {
		return nil, fmt.Errorf("read the ConfigMap of the mesh: %w", err)
	}
	return &mesh.DefaultConfig, nil
}

// configOf gives what a pod's proxy is configured with, and whether that is
// known.
func configOf(p *corev1.Pod, mesh *proxyConfig) (config proxyConfig, known bool, err error) {
	if mesh != nil {
		config = *mesh
	}
	var own proxyConfig
	if err := yaml.Unmarshal([]byte(p.Annotations[configAnnotation]), &own); err != nil {
		return config, false, fmt.Errorf("annotation %s: %w", configAnnotation, err)
	}
	if own.EnvoyMetricsService != nil {
		config.EnvoyMetricsService = own.EnvoyMetricsService
	}
	if own.ProxyStatsMatcher != nil {
		config.ProxyStatsMatcher = own.ProxyStatsMatcher
	}
	known = mesh != nil || own.EnvoyMetricsService != nil && own.ProxyStatsMatcher != nil
	return config, known, nil
}

// passes says whether the proxy reports requests in flight.
func (c proxyConfig) passes() bool {
	m := c.ProxyStatsMatcher
	if m == nil {
		return false
	}
	return slices.ContainsFunc(m.InclusionPrefixes, func(s string) bool { return strings.HasPrefix(aGauge, s) }) ||
		slices.ContainsFunc(m.InclusionSuffixes, func(s string) bool { return strings.HasSuffix(aGauge, s) }) ||
		slices.ContainsFunc(m.InclusionRegexps, func(s string) bool {
			whole, err := regexp.Compile("^(?:" + s + ")$") // as Envoy does
			return err == nil && whole.MatchString(aGauge)
		})
}

// finding is what is to be said of a pod.
type finding struct {
	wrong bool
	says  string
	mend  string
}

// diagnose says whether a pod's load arrives, why not, and what mends it. sink
// is where its proxy should push.
func diagnose(p *corev1.Pod, told heard, mesh *proxyConfig, sink string) finding {
	row, has := told[p.Namespace+"/"+p.Name]
	switch {
	case !has:
		return silent(p, mesh, sink)
	case row.FlushAge > row.freshFor:
		return finding{true, fmt.Sprintf("its last flush was %s ago, expected one in %s at most: its proxy hangs, or flushes less often", seconds(row.FlushAge), seconds(row.freshFor)),
			fmt.Sprintf("kubectl --namespace %s logs %s --container istio-proxy --tail 20; its annotation sidecar.istio.io/statsFlushInterval has to be --flush of activescale", p.Namespace, p.Name)}
	case row.Bad:
		return finding{true, fmt.Sprintf("its last flush, %s ago, had a value that cannot be, and was not taken", seconds(row.FlushAge)),
			fmt.Sprintf("kubectl --namespace %s exec %s --container istio-proxy -- pilot-agent request GET stats | grep -e active -e rq_time", p.Namespace, p.Name)}
	case row.Requests:
		return finding{says: fmt.Sprintf("last flush %s ago, with requests", seconds(row.FlushAge))}
	}
	return unasked(p, row, mesh, sink)
}

// unasked is a pod that pushes, and has never told of a request: it has had
// none, or its proxy keeps it back. Only the configuration can tell.
func unasked(p *corev1.Pod, row streamRow, mesh *proxyConfig, sink string) finding {
	but := ""
	if row.OwnOnly {
		but = " but those to Istio's own listeners such as http.stats" // a constant 1 (envoy issue 28488)
	}
	config, known, err := configOf(p, mesh)
	switch {
	case err != nil:
		return finding{true, err.Error(), configure(p, sink)}
	case len(ignores(p)) > 0:
		return ignored(p, sink)
	case config.passes():
		return finding{says: fmt.Sprintf("last flush %s ago; no request has come since its proxy started%s: served as 0", seconds(row.FlushAge), but)}
	case known || row.OwnOnly:
		return finding{true, fmt.Sprintf("last flush %s ago without requests%s: proxyStatsMatcher does not let them pass", seconds(row.FlushAge), but), configure(p, sink)}
	}
	return finding{says: fmt.Sprintf("last flush %s ago; no request has come since its proxy started, or its proxyStatsMatcher, which is not known, does not let them pass: served as 0", seconds(row.FlushAge))}
}

// silent is a pod without a stream (envoy issue 7910).
func silent(p *corev1.Pod, mesh *proxyConfig, sink string) finding {
	if !hasProxy(p) {
		return finding{true, "no stream: it has no istio-proxy; in ambient mode there is none that knows a pod's requests",
			fmt.Sprintf("kubectl label namespace %s istio-injection=enabled && %s", p.Namespace, restart(p))}
	}
	config, known, err := configOf(p, mesh)
	switch {
	case err != nil:
		return finding{true, "no stream: " + err.Error(), configure(p, sink)}
	case config.EnvoyMetricsService == nil && known:
		return finding{true, "no stream: its proxy has no envoyMetricsService", configure(p, sink)}
	case config.EnvoyMetricsService == nil:
		return finding{true, "no stream: its annotations name no envoyMetricsService", configure(p, sink)}
	case !sameHost(config.EnvoyMetricsService.Address, sink):
		return finding{true, fmt.Sprintf("no stream: its proxy pushes to %s, expected %s", config.EnvoyMetricsService.Address, sink), configure(p, sink)}
	}
	return finding{true, "no stream, though it is configured: a proxy reads envoyMetricsService when it starts, or cannot reach " + sink,
		fmt.Sprintf("%s; then kubectl --namespace %s logs %s --container istio-proxy | grep metrics_service", restart(p), p.Namespace, workload(p))}
}

// ignores are the annotations because of which proxyStatsMatcher counts for
// nothing.
func ignores(p *corev1.Pod) []string {
	var set []string
	for _, a := range oldAnnotations {
		if p.Annotations[a] != "" {
			set = append(set, a)
		}
	}
	return set
}

func ignored(p *corev1.Pod, sink string) finding {
	gone := map[string]any{}
	for _, a := range ignores(p) {
		gone[a] = nil
	}
	return finding{true, "no requests in its flushes: because of its annotation " + strings.Join(ignores(p), ", ") + " Istio ignores proxyStatsMatcher", patch(p, gone) + " && " + configure(p, sink)}
}

func hasProxy(p *corev1.Pod) bool {
	is := func(c corev1.Container) bool { return c.Name == "istio-proxy" }
	return slices.ContainsFunc(p.Spec.Containers, is) || slices.ContainsFunc(p.Spec.InitContainers, is)
}

// sameHost compares host:port, in which a host may be written in full.
func sameHost(found, expected string) bool {
	short := func(s string) string { return strings.Replace(s, ".svc.cluster.local:", ".svc:", 1) }
	return short(found) == short(expected)
}

// configure is the command that gives a pod's workload the annotation, in which
// all else stays as it is.
func configure(p *corev1.Pod, sink string) string {
	config := map[string]any{}
	if yaml.Unmarshal([]byte(p.Annotations[configAnnotation]), &config) != nil || config == nil {
		config = map[string]any{}
	}
	config["envoyMetricsService"] = map[string]any{"address": sink}
	matcher, _ := config["proxyStatsMatcher"].(map[string]any)
	if matcher == nil {
		matcher = map[string]any{}
	}
	have, _ := matcher["inclusionSuffixes"].([]any)
	for _, s := range suffixes {
		if !slices.Contains(have, any(s)) {
			have = append(have, s)
		}
	}
	matcher["inclusionSuffixes"] = have
	config["proxyStatsMatcher"] = matcher
	text, err := json.Marshal(config)
	if err != nil {
		return fmt.Sprintf("write the annotation %s anew: %v", configAnnotation, err)
	}
	return patch(p, map[string]any{configAnnotation: string(text)})
}

// patch is the command that changes annotations of a workload's pods, which
// restarts them.
func patch(p *corev1.Pod, annotations map[string]any) string {
	if strings.HasPrefix(workload(p), "pod/") {
		raw, err := json.Marshal(annotations)
		if err != nil {
			return fmt.Sprintf("change the annotations of pod %s: %v", p.Name, err)
		}
		return fmt.Sprintf("make pod %s anew with these annotations: %s", p.Name, raw)
	}
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}}})
	if err != nil {
		return fmt.Sprintf("change the annotations of %s: %v", workload(p), err)
	}
	return fmt.Sprintf("kubectl --namespace %s patch %s --type merge --patch '%s'", p.Namespace, workload(p), strings.ReplaceAll(string(raw), "'", `'\''`))
}

func restart(p *corev1.Pod) string {
	if strings.HasPrefix(workload(p), "pod/") {
		return "make pod " + p.Name + " anew"
	}
	return fmt.Sprintf("kubectl --namespace %s rollout restart %s", p.Namespace, workload(p))
}
