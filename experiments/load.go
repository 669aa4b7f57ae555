package experiments

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed scenarios/*.yaml calibrations/*.yaml
var embedded embed.FS

// Names lists the embedded scenarios in alphabetical order. Calibrations are
// no scenarios: they are only extended.
func Names() []string {
	paths, err := fs.Glob(embedded, "scenarios/*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(p), ".yaml"))
	}
	return names
}

// Load reads a scenario by the name of an embedded one or by the path of a
// .yaml file, resolves what it extends, fills in defaults and validates it.
// All faults come back at once as Faults.
func Load(nameOrPath string) (Scenario, error) {
	raw, file, err := find(nameOrPath, "")
	if err != nil {
		return Scenario{}, err
	}
	return load(raw, file)
}

// LoadFile is Load for a file, whatever it is called.
func LoadFile(path string) (Scenario, error) {
	raw, err := readFile(path)
	if err != nil {
		return Scenario{}, err
	}
	return load(raw, path)
}

func load(raw []byte, file string) (Scenario, error) {
	c := &checker{lines: map[string]position{}}
	doc, err := c.resolve(raw, file, nil)
	if err != nil {
		return Scenario{}, err
	}
	var s Scenario
	// What the decoder objects to, the checker has named already; the rest is
	// read, so that faulty values are found in the same pass.
	if err := doc.Decode(&s); err != nil && len(c.faults) == 0 {
		return Scenario{}, fmt.Errorf("%w: decode %s: %w", ErrInput, file, err)
	}
	s.Extends = ""
	s.fillDefaults()
	var values Faults
	errors.As(s.Validate(), &values)
	faults := append(c.faults, locate(values.without(c.faults), c.lines, file)...)
	if err := faults.err(); err != nil {
		return Scenario{}, err
	}
	return s, nil
}

// Marshal writes the scenario as YAML that Load reads back to the same value.
func (s Scenario) Marshal() ([]byte, error) {
	var doc yaml.Node
	if err := doc.Encode(s); err != nil {
		return nil, fmt.Errorf("write scenario %s: %w", s.Name, err)
	}
	compact(&doc)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return nil, fmt.Errorf("write scenario %s: %w", s.Name, err)
	}
	return b.Bytes(), nil
}

// compact puts lists and fields that hold only plain values on one line each,
// as a person would write them; lists of sentences stay one a line.
func compact(n *yaml.Node) {
	plain := true
	for _, c := range n.Content {
		compact(c)
		plain = plain && c.Kind == yaml.ScalarNode && len(c.Value) < 30
	}
	if plain && len(n.Content) > 0 {
		n.Style = yaml.FlowStyle
	}
}

// resolve checks a document against Scenario and lays it over the one it
// extends. chain holds the files that led here. Faults of fields are collected;
// the error is of a document that cannot be read at all.
func (c *checker) resolve(raw []byte, file string, chain []string) (*yaml.Node, error) {
	if slices.Contains(chain, file) {
		return nil, Faults{{File: file, Field: "extends", Problem: fmt.Sprintf("found a cycle %s, expected none", strings.Join(append(chain, file), " -> "))}}
	}
	doc, err := parse(file, raw)
	if err != nil {
		return nil, err
	}
	var base *yaml.Node
	if at := keyIndex(doc, "extends"); at >= 0 && doc.Content[at+1].Value != "" {
		extends := doc.Content[at+1]
		raw, from, err := find(extends.Value, filepath.Dir(file))
		if err != nil {
			return nil, Faults{{File: file, Line: extends.Line, Field: "extends", Problem: err.Error()}}
		}
		if base, err = c.resolve(raw, from, append(chain, file)); err != nil {
			return nil, err
		}
	}
	c.file = file
	c.check(doc, "", reflect.TypeFor[Scenario]()) // after its base, whose lines it overrides
	if base == nil {
		return doc, nil
	}
	return merge(base, doc), nil
}

// find reads a document by the name of an embedded one or by the path of a
// file, relative to dir.
func find(name, dir string) (raw []byte, file string, err error) {
	for _, folder := range []string{"scenarios/", "calibrations/"} {
		if raw, err := embedded.ReadFile(folder + name + ".yaml"); err == nil {
			return raw, folder + name + ".yaml", nil
		}
	}
	if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" {
		return nil, "", Faults{{Problem: fmt.Sprintf("found scenario %q, expected one of %s or the path of a .yaml file", name, strings.Join(Names(), ", "))}}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	raw, err = readFile(name)
	return raw, name, err
}

func readFile(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, Faults{{Problem: fmt.Sprintf("cannot read the scenario: %v", err)}}
	}
	return raw, nil
}

// parse gives the root of a file that holds exactly one YAML document.
func parse(file string, raw []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, Faults{{File: file, Problem: "found an empty file, expected a scenario"}}
	case err != nil:
		return nil, Faults{{File: file, Problem: err.Error()}}
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, Faults{{File: file, Line: second.Line, Problem: "found a second document, expected one a file"}}
	}
	if root := doc.Content[0]; root.Kind != yaml.MappingNode {
		return nil, Faults{{File: file, Line: root.Line, Problem: fmt.Sprintf("found %s, expected fields with values", describe(root))}}
	}
	return doc.Content[0], nil
}

// keyIndex gives the position of a key in the content of a mapping, -1 when
// it is not there; its value follows.
func keyIndex(n *yaml.Node, name string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}

// merge lays over on top of base: maps are merged key by key, where null takes
// a key out; everything else is replaced. Both may be changed.
func merge(base, over *yaml.Node) *yaml.Node {
	if base.Kind != yaml.MappingNode || over.Kind != yaml.MappingNode {
		return over
	}
	for i := 0; i+1 < len(over.Content); i += 2 {
		key, value := over.Content[i], over.Content[i+1]
		at := keyIndex(base, key.Value)
		switch {
		case value.Tag == "!!null" && at >= 0:
			base.Content = slices.Delete(base.Content, at, at+2)
		case value.Tag == "!!null":
		case at >= 0:
			base.Content[at+1] = merge(base.Content[at+1], value)
		default:
			base.Content = append(base.Content, key, value)
		}
	}
	return base
}

// locate gives each fault the line of its field or, when the field is not in
// a file, of the nearest field around it.
func locate(faults Faults, lines map[string]position, file string) Faults {
	for i, f := range faults {
		faults[i].File = file
		for path := f.Field; path != ""; path = parent(path) {
			if at, known := lines[path]; known {
				faults[i].File, faults[i].Line = at.file, at.line
				break
			}
		}
	}
	return faults
}

// parent cuts the last name or index off a path.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
