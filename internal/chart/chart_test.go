package chart

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestRender(t *testing.T) {
	tolerations := []any{map[string]any{"key": "k", "operator": "Exists"}}
	r, err := Render("../../deploy/prometheus", "watch", "shop", map[string]any{"image": "ours", "tolerations": tolerations})
	require.NoError(t, err)
	kinds := map[string]*unstructured.Unstructured{}
	for i, u := range r.Objects {
		kinds[u.GetKind()] = &r.Objects[i]
	}
	require.Len(t, kinds, 8)
	pod, _, err := unstructured.NestedMap(kinds["Deployment"].Object, "spec", "template", "spec")
	require.NoError(t, err)
	require.Equal(t, tolerations, pod["tolerations"])
	require.Equal(t, "ours", pod["containers"].([]any)[0].(map[string]any)["image"])
	require.Equal(t, "shop", kinds["Service"].GetNamespace())
	require.Equal(t, "watch-shop-nodes", kinds["ClusterRole"].GetName(), "two releases have two")

	_, err = Render("../../deploy/prometheus", "watch", "shop", map[string]any{"imgae": "ours"})
	require.ErrorContains(t, err, `no value "imgae"`)
}

// Another configuration gives other pods, so that an upgrade takes effect.
func TestConfigurationIsInThePods(t *testing.T) {
	sums := map[string]bool{}
	for _, config := range []string{"period: 3s\n", "period: 4s\n"} {
		r, err := Render("../../deploy/heart", "heart", "shop", map[string]any{"config": config})
		require.NoError(t, err)
		for _, u := range r.Objects {
			if sum, found, err := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", "checksum/config"); found {
				require.NoError(t, err)
				sums[sum] = true
			}
		}
	}
	require.Len(t, sums, 2)
}
