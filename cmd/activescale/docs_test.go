package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const document = "../../docs/activescale.md"

// yamlBlocks are those of the document.
func yamlBlocks(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(document)
	require.NoError(t, err)
	var found []string
	for _, part := range strings.Split(string(raw), "```yaml\n")[1:] {
		block, _, closed := strings.Cut(part, "```")
		require.True(t, closed)
		found = append(found, block)
	}
	return found
}

// requireProxyConfig takes only fields that Istio's ProxyConfig has, and only
// what leads to activescale and lets the gauge pass.
func requireProxyConfig(t *testing.T, text string) {
	t.Helper()
	raw, err := yaml.ToJSON([]byte(text))
	require.NoError(t, err)
	var config meshv1alpha1.ProxyConfig
	require.NoError(t, protojson.Unmarshal(raw, &config), text) // fails for an unknown field
	require.Equal(t, at, config.EnvoyMetricsService.Address)
	require.Equal(t, suffixes, config.ProxyStatsMatcher.InclusionSuffixes)
	p := cart(map[string]string{configAnnotation: text})
	own, known, err := configOf(p, nil)
	require.NoError(t, err)
	require.True(t, known)
	require.True(t, own.passes())
}

// TestDocumentedConfiguration: what the document, and the doctor, tell of Istio
// is what Istio's own types take.
func TestDocumentedConfiguration(t *testing.T) {
	var mesh, pod, hpa int
	for _, block := range yamlBlocks(t) {
		switch {
		case strings.HasPrefix(block, "meshConfig:"):
			mesh++
			var values struct {
				MeshConfig map[string]any `json:"meshConfig"`
			}
			require.NoError(t, yaml.UnmarshalStrict([]byte(block), &values))
			raw, err := json.Marshal(values.MeshConfig)
			require.NoError(t, err)
			var config meshv1alpha1.MeshConfig
			require.NoError(t, protojson.Unmarshal(raw, &config))
			inner, err := json.Marshal(values.MeshConfig["defaultConfig"])
			require.NoError(t, err)
			requireProxyConfig(t, string(inner))
		case strings.HasPrefix(block, "metadata:"):
			pod++
			var template struct {
				Metadata metav1.ObjectMeta `json:"metadata"`
			}
			require.NoError(t, yaml.UnmarshalStrict([]byte(block), &template))
			requireProxyConfig(t, template.Metadata.Annotations[configAnnotation])
		case strings.Contains(block, "kind: HorizontalPodAutoscaler"):
			hpa++
			var h autoscalingv2.HorizontalPodAutoscaler
			require.NoError(t, yaml.UnmarshalStrict([]byte(block), &h))
			require.NotEmpty(t, h.Spec.Metrics)
		}
	}
	require.Equal(t, []int{1, 1, 1}, []int{mesh, pod, hpa})
	p := cart(nil)
	_, after, _ := strings.Cut(configure(p, at), `"proxy.istio.io/config":"`)
	text, _, _ := strings.Cut(after, `"}}}}}'`)
	requireProxyConfig(t, strings.ReplaceAll(text, `\"`, `"`))
}
