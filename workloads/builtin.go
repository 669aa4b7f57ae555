package workloads

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed apps/*.yaml
var builtin embed.FS

// Names lists the built-in applications in alphabetical order.
func Names() []string {
	entries, err := builtin.ReadDir("apps")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Named returns a built-in application.
func Named(name string) (Application, error) {
	raw, err := builtin.ReadFile(path.Join("apps", name+".yaml"))
	if err != nil {
		return Application{}, fmt.Errorf("application %q is not built in, expected one of %s", name, strings.Join(Names(), ", "))
	}
	return Parse(name+".yaml", raw)
}

// Parse reads an application from YAML. Unknown fields and wrong types are
// errors that name file and line; the result is not yet validated.
func Parse(file string, raw []byte) (Application, error) {
	var a Application
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&a); err != nil {
		return Application{}, fmt.Errorf("%s: %w", file, err)
	}
	return a, nil
}
