package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"heartbed/internal/chart"
)

// release is deploy/heart as it is installed into a namespace.
func release(t *testing.T, config string) chart.Release {
	r, err := chart.Render("../../deploy/heart", "heart", "shop", map[string]any{"config": config})
	require.NoError(t, err)
	return r
}

// TestChartHoldsAConfig: what the chart mounts is a config that heart takes.
func TestChartHoldsAConfig(t *testing.T) {
	for _, u := range release(t, good[len("\nnamespace: shop\n"):]).Objects {
		if u.GetKind() != "ConfigMap" {
			continue
		}
		text, _, err := unstructured.NestedString(u.Object, "data", "heart.yaml")
		require.NoError(t, err)
		c, err := readConfig(write(t, "heart.yaml", text))
		require.NoError(t, err)
		require.Equal(t, "shop", c.Namespace)
		return
	}
	t.Fatal("the chart has no ConfigMap")
}
