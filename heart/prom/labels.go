package prom

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// label is a name and a value.
type label struct{ name, value string }

// labels of a series. In observations of tens of thousands of series a map for
// each would be most of the memory.
type labels []label

// labelsOf gives the labels in the order of their names.
func labelsOf(m model.Metric) labels {
	var l labels
	for _, name := range slices.Sorted(maps.Keys(m)) {
		l = append(l, label{string(name), string(m[name])})
	}
	return l
}

// get is the value of a label; "" = it has none.
func (l labels) get(name string) string {
	for i := range l {
		if l[i].name == name {
			return l[i].value
		}
	}
	return ""
}

// String writes the labels as in a selector.
func (l labels) String() string {
	var all []string
	for _, x := range l {
		all = append(all, fmt.Sprintf("%s=%q", x.name, x.value))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// text appends the labels that are wanted to b, so that equal ones make equal
// texts.
func (l labels) text(b []byte, want func(name string) bool) []byte {
	for _, x := range l {
		if want(x.name) {
			b = append(append(append(append(b, x.name...), 0xfe), x.value...), 0xff)
		}
	}
	return b
}

// only gives the labels that are wanted.
func (l labels) only(want func(name string) bool) labels {
	return slices.DeleteFunc(slices.Clone(l), func(x label) bool { return !want(x.name) })
}

// differences names the labels in which two series differ.
func differences(a, b labels) string {
	names := map[string]bool{}
	for _, x := range slices.Concat(a, b) {
		names[x.name] = true
	}
	delete(names, model.MetricNameLabel)
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		x, y := a.get(name), b.get(name)
		if c := cmp.Compare(x, y); c != 0 {
			differ = append(differ, fmt.Sprintf("%s=%q and %q", name, min(x, y), max(x, y)))
		}
	}
	return strings.Join(differ, ", ")
}
