package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// chart renders deploy/heart as Helm would. Its templates use nothing that
// text/template lacks, so that no library of Helm is needed here.
func chart(t *testing.T, release, namespace string, values map[string]any) []unstructured.Unstructured {
	all := map[string]any{}
	raw, err := os.ReadFile("../../deploy/heart/values.yaml")
	require.NoError(t, err)
	require.NoError(t, yamlv3.Unmarshal(raw, &all))
	for key, value := range values {
		require.Contains(t, all, key)
		all[key] = value
	}
	files, err := filepath.Glob("../../deploy/heart/templates/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var objects []unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tmpl, err := template.New(file).Option("missingkey=error").Parse(string(text))
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, tmpl.Execute(&out, map[string]any{
			"Values": all, "Release": map[string]any{"Name": release, "Namespace": namespace},
		}))
		for documents := yaml.NewYAMLOrJSONDecoder(&out, 4096); ; {
			var u unstructured.Unstructured
			if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, file)
			}
			objects = append(objects, u)
		}
	}
	return objects
}

// TestChartHoldsAConfig: what the chart mounts is a config that heart takes.
func TestChartHoldsAConfig(t *testing.T) {
	for _, u := range chart(t, "heart", "shop", map[string]any{"config": good[len("\nnamespace: shop\n"):]}) {
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

// install applies the objects of a chart.
func (l live) install(t *testing.T, objects []unstructured.Unstructured) {
	for _, u := range objects {
		kind := u.GroupVersionKind()
		resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
		var client dynamic.ResourceInterface = l.client.Resource(resource)
		if u.GetNamespace() != "" {
			client = l.client.Resource(resource).Namespace(u.GetNamespace())
		}
		_, err := client.Apply(t.Context(), u.GetName(), &u, metav1.ApplyOptions{FieldManager: "helm"})
		require.NoError(t, err, "%s %s", u.GetKind(), u.GetName())
	}
}
