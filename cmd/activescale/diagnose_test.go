package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const at = "activescale.monitoring.svc:9000"

// meshWith is the ConfigMap's text for a mesh that is set up as the docs say.
const meshWith = `
defaultConfig:
  discoveryAddress: istiod.istio-system.svc:15012
  envoyMetricsService: {address: "activescale.monitoring.svc.cluster.local:9000"}
  proxyStatsMatcher: {inclusionSuffixes: [downstream_rq_active, downstream_cx_active]}
`

// cart is a live pod of a Deployment with a sidecar.
func cart(annotations map[string]string) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "cart-7d9f-x", Labels: map[string]string{"pod-template-hash": "7d9f"}, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "cart-7d9f", Controller: &yes}},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "cart"}}, InitContainers: []corev1.Container{{Name: "istio-proxy"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func row(age float64, requests, ownOnly bool) heard {
	r := streamRow{Pod: "shop/cart-7d9f-x", FlushAge: age, Requests: requests, OwnOnly: ownOnly, freshFor: 20}
	return heard{r.Pod: r}
}

func TestDiagnose(t *testing.T) {
	bare := cart(nil)
	bare.Spec.InitContainers = nil
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		told  heard
		mesh  string // "" = not known
		wrong bool
		says  string
		mend  string
	}{
		"well":             {pod: cart(nil), told: row(1.26, true, false), mesh: meshWith, says: "last flush 1.3s ago, with requests"},
		"well, no sidecar": {pod: bare, told: row(1, true, false), says: "last flush 1s ago"},
		"bad value":        {pod: cart(nil), told: heard{"shop/cart-7d9f-x": {FlushAge: 1, Requests: true, Bad: true, freshFor: 20}}, mesh: meshWith, wrong: true, says: "had a value that cannot be", mend: "pilot-agent request GET stats"},
		"idle":             {pod: cart(nil), told: row(1, false, false), mesh: meshWith, says: "no request has come since its proxy started: served as 0"},
		// envoy issue 28488
		"only http.stats":                        {pod: cart(nil), told: row(1, false, true), mesh: "{}", wrong: true, says: "without requests but those to Istio's own listeners such as http.stats", mend: "kubectl --namespace shop patch deployment/cart"},
		"only http.stats, by an unknown matcher": {pod: cart(nil), told: row(1, false, true), wrong: true, says: "http.stats", mend: "patch deployment/cart"},
		"only http.stats, because idle":          {pod: cart(nil), told: row(1, false, true), mesh: meshWith, says: "no request has come since its proxy started but those to Istio's own"},
		"idle, matcher unknown":                  {pod: cart(nil), told: row(1, false, false), says: "which is not known"},
		"no matcher":                             {pod: cart(nil), told: row(1, false, false), mesh: "defaultConfig: {}", wrong: true, says: "without requests: proxyStatsMatcher does not let them pass", mend: "patch deployment/cart"},
		"old annotation": {
			pod: cart(map[string]string{oldAnnotations[1]: "x"}), told: row(1, false, false), mesh: meshWith, wrong: true,
			says: "because of its annotation sidecar.istio.io/statsInclusionSuffixes Istio ignores", mend: `"sidecar.istio.io/statsInclusionSuffixes":null`,
		},
		"late": {pod: cart(nil), told: row(31, true, false), mesh: meshWith, wrong: true, says: "its last flush was 31s ago, expected one in 20s", mend: "statsFlushInterval"},
		// envoy issue 7910: the service is silently never called
		"no stream, configured":     {pod: cart(nil), mesh: meshWith, wrong: true, says: "no stream, though it is configured", mend: "kubectl --namespace shop rollout restart deployment/cart"},
		"no stream, not configured": {pod: cart(nil), mesh: "{}", wrong: true, says: "its proxy has no envoyMetricsService", mend: `{\"address\":\"activescale.monitoring.svc:9000\"}`},
		"no stream, mesh unknown":   {pod: cart(nil), wrong: true, says: "its annotations name no envoyMetricsService", mend: "patch deployment/cart"},
		"elsewhere": {
			pod: cart(map[string]string{configAnnotation: "envoyMetricsService: {address: 'old.svc:9000'}"}), mesh: meshWith, wrong: true,
			says: "pushes to old.svc:9000, expected " + at, mend: "patch deployment/cart",
		},
		"no proxy":         {pod: bare, mesh: meshWith, wrong: true, says: "it has no istio-proxy", mend: "kubectl label namespace shop istio-injection=enabled && kubectl --namespace shop rollout restart deployment/cart"},
		"broken":           {pod: cart(map[string]string{configAnnotation: "{"}), mesh: meshWith, wrong: true, says: "annotation proxy.istio.io/config", mend: "patch deployment/cart"},
		"broken with flow": {pod: cart(map[string]string{configAnnotation: "[1]"}), told: row(1, false, false), mesh: meshWith, wrong: true, says: "annotation proxy.istio.io/config", mend: "patch deployment/cart"},
	} {
		t.Run(name, func(t *testing.T) {
			var mesh *proxyConfig
			if c.mesh != "" {
				var err error
				mesh, err = parseMesh(c.mesh)
				require.NoError(t, err)
			}
			f := diagnose(c.pod, c.told, mesh, at)
			require.Equal(t, c.wrong, f.wrong, f.says)
			require.Contains(t, f.says, c.says)
			require.Contains(t, f.mend, c.mend)
			require.Equal(t, c.wrong, f.mend != "", "what is wrong has a command")
		})
	}
}

// The command keeps what an annotation says already, and survives a shell.
func TestConfigureCommand(t *testing.T) {
	p := cart(map[string]string{configAnnotation: "concurrency: 2\nextra: \"it's\"\nproxyStatsMatcher: {inclusionSuffixes: [mine, downstream_rq_active]}"})
	command := configure(p, at)
	_, quoted, ok := strings.Cut(command, "--patch ")
	require.True(t, ok)
	raw, err := exec.Command("sh", "-c", "printf %s "+quoted).Output()
	require.NoError(t, err)
	var patch struct {
		Spec struct {
			Template struct{ Metadata metav1.ObjectMeta }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &patch))
	require.JSONEq(t, `{"concurrency":2,"extra":"it's","envoyMetricsService":{"address":"activescale.monitoring.svc:9000"},
		"proxyStatsMatcher":{"inclusionSuffixes":["mine","downstream_rq_active","downstream_cx_active","downstream_rq_time"]}}`,
		patch.Spec.Template.Metadata.Annotations[configAnnotation])
	p.Annotations[configAnnotation] = patch.Spec.Template.Metadata.Annotations[configAnnotation]
	require.Equal(t, command, configure(p, at), "once more changes nothing")
}

func TestMatcherPasses(t *testing.T) {
	for matcher, want := range map[string]bool{
		"":                            false,
		"inclusionPrefixes: [http.]":  true,
		"inclusionPrefixes: [tcp]":    false,
		"inclusionSuffixes: [active]": true,
		"inclusionRegexps: ['.*downstream_rq_active.*']": true,
		"inclusionRegexps: ['downstream_rq_active']":     false, // it has to match the whole name
		"inclusionRegexps: ['(']":                        false,
	} {
		mesh, err := parseMesh("defaultConfig: {proxyStatsMatcher: {" + matcher + "}}")
		require.NoError(t, err, matcher)
		require.Equal(t, want, mesh.passes(), matcher)
	}
	require.False(t, proxyConfig{}.passes())
}

func TestWorkload(t *testing.T) {
	require.Equal(t, "deployment/cart", workload(cart(nil)))
	p := cart(nil)
	p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "StatefulSet", "db"
	require.Equal(t, "statefulset/db", workload(p))
	p.OwnerReferences = nil
	require.Equal(t, "pod/cart-7d9f-x", workload(p))
	require.Contains(t, configure(p, at), "make pod cart-7d9f-x anew")
}
