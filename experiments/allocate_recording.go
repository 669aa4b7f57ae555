package experiments

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"heartbed/heart"
)

// Recording is a topology and what was measured of it in some windows: the
// input of Allocate.
type Recording struct {
	Nodes []string `yaml:"nodes"`
	// RTTMs is a row a node, in the order of nodes, ms, round trip; null = not
	// measured. It need not be symmetric.
	RTTMs    [][]*float64      `yaml:"rttMs"`
	Calls    []RecordedCall    `yaml:"calls"`
	Replicas []RecordedReplica `yaml:"replicas"`
	// Windows in order of time; a replica that is left out was not observed.
	// Without any window the policy is asked once, with nothing observed.
	Windows []map[string]RecordedSample `yaml:"windows"`
}

// RecordedCall is an edge of the call graph.
type RecordedCall struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
}

// RecordedReplica is a replica and its node.
type RecordedReplica struct {
	Name      string  `yaml:"name"`
	Component string  `yaml:"component"`
	Node      string  `yaml:"node"`
	CPULimit  float64 `yaml:"cpuLimit,omitempty"` // cores; 0 = no limit known
}

// RecordedSample is what was measured of a replica in one window.
type RecordedSample struct {
	CPUSeconds *float64 `yaml:"cpuSeconds"`
	Requests   *float64 `yaml:"requests"`
}

// ReadRecording reads and validates a recording from a YAML file. All faults
// come back at once as Faults, with their lines.
func ReadRecording(path string) (Recording, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Recording{}, fmt.Errorf("%w: read recording: %w", ErrInput, err)
	}
	return parseRecording(path, raw)
}

func parseRecording(file string, raw []byte) (Recording, error) {
	var rec Recording
	if len(bytes.TrimSpace(raw)) == 0 {
		return rec, Faults{{File: file, Problem: "found an empty file, expected a recording: nodes, rttMs, calls, replicas, windows"}}
	}
	doc, err := parse(file, raw)
	if err != nil {
		return rec, err
	}
	c := &checker{file: file, lines: map[string]position{}}
	c.check(doc, "", reflect.TypeFor[Recording]())
	// What the decoder objects to, the checker has named already; the rest is
	// read, so that faulty values are found in the same pass.
	if err := doc.Decode(&rec); err != nil && len(c.faults) == 0 {
		return rec, Faults{{File: file, Problem: err.Error()}}
	}
	return rec, append(c.faults, locate(rec.faults().without(c.faults), c.lines, file)...).err()
}

// faults finds everything that is wrong with the recording.
func (r Recording) faults() Faults {
	var fs Faults
	nodes := map[string]bool{}
	if len(r.Nodes) == 0 {
		fs.add("nodes", "found none, expected at least one")
	}
	for i, n := range r.Nodes {
		fs.unique(fmt.Sprintf("nodes[%d]", i), "node", n, nodes)
	}
	r.rttFaults(&fs)
	components, replicas := map[string]bool{}, map[string]bool{}
	if len(r.Replicas) == 0 {
		fs.add("replicas", "found none, expected at least one")
	}
	for i, replica := range r.Replicas {
		at := fmt.Sprintf("replicas[%d]", i)
		fs.unique(at+".name", "replica", replica.Name, replicas)
		if replica.Component == "" {
			fs.add(at+".component", "found none, expected the name of a component")
		}
		components[replica.Component] = true
		if !nodes[replica.Node] {
			fs.add(at+".node", "found %q, expected one of the nodes %s", replica.Node, strings.Join(r.Nodes, ", "))
		}
		fs.measured(at+".cpuLimit", &replica.CPULimit)
	}
	r.callFaults(&fs, components)
	for i, window := range r.Windows {
		for _, name := range slices.Sorted(maps.Keys(window)) {
			at := fmt.Sprintf("windows[%d].%s", i, name)
			if !replicas[name] {
				fs.add(at, "found %q, expected the name of a replica", name)
			}
			fs.measured(at+".cpuSeconds", window[name].CPUSeconds)
			fs.measured(at+".requests", window[name].Requests)
		}
	}
	return fs
}

// unique reports a name that is empty or was seen before.
func (fs *Faults) unique(field, what, name string, seen map[string]bool) {
	switch {
	case name == "":
		fs.add(field, "found none, expected the name of a %s", what)
	case seen[name]:
		fs.add(field, "found %q again, expected each %s once", name, what)
	}
	seen[name] = true
}

// measured reports a value that is missing, negative or not finite.
func (fs *Faults) measured(field string, x *float64) {
	switch {
	case x == nil:
		fs.add(field, "found none, expected a number of 0 or more (leave the replica out if it was not observed)")
	case !(*x >= 0) || math.IsInf(*x, 0):
		fs.add(field, "found %g, expected a number of 0 or more", *x)
	}
}

func (r Recording) rttFaults(fs *Faults) {
	const mostMs = 3_600_000
	if len(r.RTTMs) != len(r.Nodes) {
		fs.add("rttMs", "found %d rows, expected %d, one a node", len(r.RTTMs), len(r.Nodes))
	}
	for i, row := range r.RTTMs {
		if len(row) != len(r.Nodes) {
			fs.add(fmt.Sprintf("rttMs[%d]", i), "found %d values, expected %d, one a node", len(row), len(r.Nodes))
		}
		for j, ms := range row {
			if ms != nil && !(0 <= *ms && *ms <= mostMs) {
				fs.add(fmt.Sprintf("rttMs[%d][%d]", i, j), "found %g, expected ms from 0 to %d, or null if not measured", *ms, mostMs)
			}
		}
	}
}

func (r Recording) callFaults(fs *Faults, components map[string]bool) {
	seen := map[RecordedCall]bool{}
	for i, c := range r.Calls {
		at := fmt.Sprintf("calls[%d]", i)
		for _, end := range []struct{ field, name string }{{".from", c.From}, {".to", c.To}} {
			if !components[end.name] {
				fs.add(at+end.field, "found %q, expected a component that has a replica", end.name)
			}
		}
		if seen[c] {
			fs.add(at, "found %s to %s again, expected each call once", c.From, c.To)
		}
		seen[c] = true
	}
	if cycle := r.cycle(); cycle != nil {
		fs.add("calls", "found the cycle %s, expected none", strings.Join(cycle, " -> "))
	}
}

// cycle finds components that call each other in a circle, first = last.
func (r Recording) cycle() []string {
	callees := map[string][]string{}
	for _, c := range r.Calls {
		callees[c.From] = append(callees[c.From], c.To)
	}
	done := map[string]bool{}
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		if at := slices.Index(path, name); at >= 0 {
			return append(slices.Clone(path[at:]), name)
		}
		if done[name] {
			return nil
		}
		path = append(path, name)
		for _, to := range callees[name] {
			if found := visit(to); found != nil {
				return found
			}
		}
		path, done[name] = path[:len(path)-1], true
		return nil
	}
	for _, c := range r.Calls {
		if found := visit(c.From); found != nil {
			return found
		}
	}
	return nil
}

// Observations are the windows as a controller would see them: at least one.
func (r Recording) Observations() []heart.Observation {
	t := r.topology()
	if len(r.Windows) == 0 {
		return []heart.Observation{{Topology: t, Warnings: []string{"the recording has no windows: nothing was observed"}}}
	}
	observations := make([]heart.Observation, len(r.Windows))
	for i, window := range r.Windows {
		observations[i] = heart.Observation{Topology: t, Replicas: make(map[string]heart.Sample, len(window))}
		for name, s := range window {
			observations[i].Replicas[name] = heart.Sample{CPUSeconds: *s.CPUSeconds, Requests: *s.Requests}
		}
	}
	return observations
}

func (r Recording) topology() heart.Topology {
	var t heart.Topology
	for _, n := range r.Nodes {
		t.Nodes = append(t.Nodes, heart.Node{Name: n})
	}
	for _, c := range r.Calls {
		t.Calls = append(t.Calls, heart.Call(c))
	}
	for _, p := range r.Replicas {
		t.Replicas = append(t.Replicas, heart.Replica(p))
	}
	for _, row := range r.RTTMs {
		rtts := make([]time.Duration, len(row))
		for j, ms := range row {
			if rtts[j] = heart.Unmeasured; ms != nil {
				rtts[j] = time.Duration(math.Round(*ms * 1e6))
			}
		}
		t.RTT = append(t.RTT, rtts)
	}
	return t
}
