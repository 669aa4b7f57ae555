// Package policy holds the allocation policies, one file a policy, and the
// registry through which they are found by name.
//
// A policy registers itself in the last declaration of its file:
//
//	var _ = register(Spec{Name: "mine", Summary: "...", New: func(v Values) (heart.Policy, error) { ... }})
//
// Nothing else has to be edited: the command line, the contract tests and the
// report find it through Names.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"heartbed/heart"
)

// Spec describes a policy and makes it.
type Spec struct {
	Name    string
	Summary string // one line
	Params  []Param
	// New makes a policy with no memory. A value that cannot be read is noted
	// by the Values method that read it; New returns an error only for values
	// that contradict each other.
	New func(Values) (heart.Policy, error)
}

// Param is a parameter of a policy.
type Param struct {
	Name    string
	Default string
	Help    string
}

var specs = map[string]Spec{}

// register adds a policy. A second policy of the same name is a programming
// error that shows when the program starts.
func register(s Spec) Spec {
	if _, twice := specs[s.Name]; twice {
		panic(fmt.Sprintf("policy %q is registered twice", s.Name))
	}
	specs[s.Name] = s
	return s
}

// Names lists the registered policies in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(specs)) }

// Lookup finds a policy by name.
func Lookup(name string) (Spec, bool) {
	s, known := specs[name]
	return s, known
}

// New makes the policy with the given parameters; those left out take their
// defaults. The error joins every fault: an unknown policy, unknown
// parameters, values that cannot be read.
func New(name string, params map[string]string) (heart.Policy, error) {
	spec, known := Lookup(name)
	if !known {
		return nil, fmt.Errorf("policy %q is unknown, expected one of %s", name, strings.Join(Names(), ", "))
	}
	v := Values{policy: name, values: map[string]string{}, faults: new([]error)}
	for _, p := range spec.Params {
		v.values[p.Name] = p.Default
	}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if _, known := v.values[key]; !known {
			v.fault("parameter %q is unknown, expected %s", key, spec.paramNames())
			continue
		}
		v.values[key] = params[key]
	}
	p, err := spec.New(v)
	if err != nil {
		v.fault("%w", err)
	}
	if err := errors.Join(*v.faults...); err != nil {
		return nil, err
	}
	return p, nil
}

func (s Spec) paramNames() string {
	if len(s.Params) == 0 {
		return "none"
	}
	var names []string
	for _, p := range s.Params {
		names = append(names, p.Name)
	}
	return "one of " + strings.Join(names, ", ")
}

// Values are the parameters a policy is made with. Its methods read one each;
// a value that cannot be read is noted for New and read as zero.
type Values struct {
	policy string
	values map[string]string
	faults *[]error
}

func (v Values) fault(format string, args ...any) {
	*v.faults = append(*v.faults, fmt.Errorf("policy %q: "+format, append([]any{v.policy}, args...)...))
}

// OneOf reads a word out of a list.
func (v Values) OneOf(name string, words ...string) string {
	value := v.values[name]
	if !slices.Contains(words, value) {
		v.fault("parameter %s is %q, expected one of %s", name, value, strings.Join(words, ", "))
	}
	return value
}

// On reads a switch: on or off.
func (v Values) On(name string) bool { return v.OneOf(name, "on", "off") == "on" }

// Float reads a number from low to high.
func (v Values) Float(name string, low, high float64) float64 {
	x, err := strconv.ParseFloat(v.values[name], 64)
	if err != nil || !(low <= x && x <= high) { // the negation catches NaN
		v.fault("parameter %s is %q, expected a number from %g to %g", name, v.values[name], low, high)
		return 0
	}
	return x
}

// Int reads a whole number from low to high.
func (v Values) Int(name string, low, high int) int {
	n, err := strconv.Atoi(v.values[name])
	if err != nil || n < low || n > high {
		v.fault("parameter %s is %q, expected a whole number from %d to %d", name, v.values[name], low, high)
		return 0
	}
	return n
}
