// Package workloads describes what runs and what is asked of it: applications
// as data and offered load. It is pure; the simulator and the live backends
// play the same description.
package workloads

import (
	"maps"
	"slices"

	"heartbed/heart"
)

// Application is a set of components and their call graph.
type Application struct {
	Name       string      `yaml:"name"`
	Entry      string      `yaml:"entry"` // the component that requests from outside reach first
	Components []Component `yaml:"components"`
	// ServiceTime is the distribution of every CPU step around its mean.
	ServiceTime Distribution `yaml:"serviceTime"`
	// Server is how each replica works off its requests.
	Server Server `yaml:"server"`
}

// Component is a microservice: what one request costs and whom it calls.
type Component struct {
	Name     string `yaml:"name"`
	Replicas int    `yaml:"replicas"`
	Steps    []Step `yaml:"steps"` // done in order for each request
}

// Step is either CPU work or one or more calls. Exactly one of CPUMs, Call
// and Choose is set.
type Step struct {
	CPUMs       float64            `yaml:"cpuMs,omitempty"`       // mean CPU time on a node of slowness 1, ms
	Call        []string           `yaml:"call,omitempty"`        // components called at the same time; the step ends with the last answer
	Probability float64            `yaml:"probability,omitempty"` // that the call is made; 0 = always
	Choose      map[string]float64 `yaml:"choose,omitempty"`      // exactly one is called, with these probabilities (sum 1)
}

// Distribution of a service time. The zero value is deterministic.
type Distribution struct {
	Kind string  `yaml:"kind"`         // deterministic, exponential or lognormal
	CV   float64 `yaml:"cv,omitempty"` // coefficient of variation, lognormal only
}

// Server is a replica as a queueing station.
type Server struct {
	// Slots is how many requests are in CPU service at once; more wait in
	// order of arrival. 0 = no limit: processor sharing.
	Slots int `yaml:"slots"`
	// Threads is how many cores the replica can use at once (1 = one event loop).
	Threads float64 `yaml:"threads"`
	// HoldSlot keeps the slot while the request waits for its own calls, as a
	// thread-per-request server does; an event loop lets go of it.
	HoldSlot bool `yaml:"holdSlot,omitempty"`
	// LimitCores is the CFS quota divided by its period; 0 = no quota.
	LimitCores float64  `yaml:"limitCores,omitempty"`
	Period     Duration `yaml:"period,omitempty"` // CFS period; default 100ms
	Burst      Duration `yaml:"burst,omitempty"`  // CFS burst: unused quota that may be carried over
}

// Calls lists the edges of the call graph, each once, in the order of the
// components and their steps; the names of a Choose in alphabetical order.
func (a Application) Calls() []heart.Call {
	var calls []heart.Call
	seen := map[heart.Call]bool{}
	for _, c := range a.Components {
		for _, s := range c.Steps {
			for _, to := range slices.Concat(s.Call, SortedNames(s.Choose)) {
				call := heart.Call{From: c.Name, To: to}
				if !seen[call] {
					seen[call] = true
					calls = append(calls, call)
				}
			}
		}
	}
	return calls
}

// SortedNames lists the keys of a Choose in alphabetical order.
func SortedNames(choose map[string]float64) []string {
	return slices.Sorted(maps.Keys(choose))
}
