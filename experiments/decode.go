package experiments

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checker compares a YAML document with the Go type it is meant for and
// collects every difference. The decoder's own strict mode stops short of
// saying where in the document a field stands and what is expected there.
type checker struct {
	file   string
	lines  map[string]position // where each field was set
	faults Faults
}

// position is a place in a file.
type position struct {
	file string
	line int
}

func (c *checker) fault(n *yaml.Node, path, format string, args ...any) {
	c.faults = append(c.faults, Fault{File: c.file, Line: n.Line, Field: path, Problem: fmt.Sprintf(format, args...)})
}

// check walks the node n, found at path, along the type t.
func (c *checker) check(n *yaml.Node, path string, t reflect.Type) {
	if path != "" {
		c.lines[path] = position{c.file, n.Line}
	}
	if n.Kind == yaml.AliasNode {
		c.fault(n, path, "found an alias (*), expected a value: write it out or use extends")
		return
	}
	if n.Tag == "!!null" {
		return // leaves the field at its default
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isLeaf(t):
		c.leaf(n, path, t)
	case t.Kind() == reflect.Struct:
		c.structure(n, path, t)
	case t.Kind() == reflect.Map:
		c.mapping(n, path, t)
	default:
		c.sequence(n, path, t)
	}
}

var (
	yamlUnmarshaler = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isLeaf reports whether a value of t is written as one YAML scalar.
func isLeaf(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	if p.Implements(yamlUnmarshaler) || p.Implements(textUnmarshaler) {
		return true
	}
	return t.Kind() != reflect.Struct && t.Kind() != reflect.Map && t.Kind() != reflect.Slice
}

func (c *checker) leaf(n *yaml.Node, path string, t reflect.Type) {
	custom := reflect.PointerTo(t).Implements(yamlUnmarshaler)
	if n.Kind != yaml.ScalarNode {
		c.fault(n, path, "found %s, expected %s", describe(n), expected(t))
		return
	}
	err := n.Decode(reflect.New(t).Interface())
	whole := t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 && !custom
	switch {
	case err == nil && whole && n.Tag != "!!int": // the decoder would cut 2.5 to 2
		c.fault(n, path, "found %s, expected %s", describe(n), expected(t))
	case err == nil:
	case custom: // its text says what was found and what is expected
		text := strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n  ")
		if _, rest, cut := strings.Cut(text, ": "); cut && strings.HasPrefix(text, "line ") {
			text = rest
		}
		c.fault(n, path, "%s", text)
	default:
		c.fault(n, path, "found %s, expected %s", describe(n), expected(t))
	}
}

func (c *checker) structure(n *yaml.Node, path string, t reflect.Type) {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		fields[name] = t.Field(i).Type
	}
	c.pairs(n, path, func(key, value *yaml.Node) {
		ft, known := fields[key.Value]
		if !known {
			c.fault(key, join(path, key.Value), "unknown field, expected one of %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			return
		}
		c.check(value, join(path, key.Value), ft)
	})
}

func (c *checker) mapping(n *yaml.Node, path string, t reflect.Type) {
	c.pairs(n, path, func(key, value *yaml.Node) {
		c.check(value, join(path, key.Value), t.Elem())
	})
}

// pairs calls each for every key of a mapping. Keys that are no plain name or
// come a second time are reported and taken out, because they would keep the
// decoder from reading the rest.
func (c *checker) pairs(n *yaml.Node, path string, each func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		c.fault(n, path, "found %s, expected fields with values", describe(n))
		return
	}
	first := map[string]int{} // line
	var kept []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		line, twice := first[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			c.fault(key, path, "found a key that is no plain name, expected a name")
		case twice:
			c.fault(key, join(path, key.Value), "found twice (first on line %d), expected once", line)
		default:
			first[key.Value] = key.Line
			kept = append(kept, key, value)
			each(key, value)
		}
	}
	n.Content = kept
}

func (c *checker) sequence(n *yaml.Node, path string, t reflect.Type) {
	if n.Kind != yaml.SequenceNode {
		c.fault(n, path, "found %s, expected a list", describe(n))
		return
	}
	for i, item := range n.Content {
		c.check(item, path+"["+strconv.Itoa(i)+"]", t.Elem())
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// describe names what a node holds, shortened for a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	}
	if len(n.Value) > 60 {
		return strconv.Quote(n.Value[:60]) + "..."
	}
	return strconv.Quote(n.Value)
}

func expected(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(yamlUnmarshaler) {
		return "a duration with its unit, such as 90s or 7ms"
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint64, reflect.Uint32:
		return "a whole number of 0 or more"
	default:
		return "a whole number"
	}
}
