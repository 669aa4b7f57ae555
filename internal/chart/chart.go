// Package chart installs the charts under deploy/ as Helm would, for tests.
// Their templates use little that text/template lacks, so that no library of
// Helm is needed.
package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	yamlv3 "go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// Release is a chart's objects under a name in a namespace.
type Release struct {
	Name, Namespace string
	Objects         []unstructured.Unstructured
}

// Render renders the chart in a folder. Values that its values.yaml does not
// name are an error.
func Render(dir, name, namespace string, values map[string]any) (Release, error) {
	r := Release{Name: name, Namespace: namespace}
	all := map[string]any{}
	raw, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return r, err
	}
	if err := yamlv3.Unmarshal(raw, &all); err != nil {
		return r, fmt.Errorf("%s: values.yaml: %w", dir, err)
	}
	for key, value := range values {
		if _, known := all[key]; !known {
			return r, fmt.Errorf("%s has no value %q", dir, key)
		}
		all[key] = value
	}
	files, err := filepath.Glob(filepath.Join(dir, "templates", "*.yaml"))
	if err != nil || len(files) == 0 {
		return r, fmt.Errorf("%s: found no templates: %w", dir, err)
	}
	data := map[string]any{"Values": all, "Release": map[string]any{"Name": name, "Namespace": namespace}}
	for _, file := range files {
		if err := r.render(file, data); err != nil {
			return r, fmt.Errorf("%s: %w", file, err)
		}
	}
	return r, nil
}

// functions are the two of Helm's that the templates use.
var functions = template.FuncMap{
	"toJson": func(v any) (string, error) {
		raw, err := json.Marshal(v)
		return string(raw), err
	},
	"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
}

func (r *Release) render(file string, data any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t, err := template.New("").Option("missingkey=error").Funcs(functions).Parse(string(text))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return err
	}
	return r.Read(&out)
}

// Read adds the objects of a manifest.
func (r *Release) Read(manifest io.Reader) error {
	for documents := yaml.NewYAMLOrJSONDecoder(manifest, 4096); ; {
		var u unstructured.Unstructured
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if u.Object != nil { // a document of comments
			r.Objects = append(r.Objects, u)
		}
	}
}

// Install applies the objects; those that are there become as they are here.
func (r Release) Install(ctx context.Context, client dynamic.Interface) error {
	for _, u := range r.Objects {
		if _, err := at(client, u).Apply(ctx, u.GetName(), &u, metav1.ApplyOptions{FieldManager: "helm", Force: true}); err != nil {
			return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

// Uninstall deletes the objects.
func (r Release) Uninstall(ctx context.Context, client dynamic.Interface) error {
	var errs []error
	for _, u := range r.Objects {
		if err := at(client, u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s %s: %w", u.GetKind(), u.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// at is where an object is. Its resource is its kind's plural.
func at(client dynamic.Interface, u unstructured.Unstructured) dynamic.ResourceInterface {
	kind := u.GroupVersionKind()
	resource := client.Resource(kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s"))
	if u.GetNamespace() == "" {
		return resource
	}
	return resource.Namespace(u.GetNamespace())
}
