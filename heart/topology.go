package heart

import (
	"errors"
	"fmt"
	"time"
)

// Unmeasured marks a round-trip time nobody has measured. It is never zero:
// zero is the round-trip time of a node to itself.
const Unmeasured time.Duration = -1

// Node is a machine that runs replicas.
type Node struct {
	Name  string
	Cores float64 // usable CPU cores; 0 = not known
}

// Replica is one running instance of a component.
type Replica struct {
	Name      string
	Component string
	Node      string
	CPULimit  float64 // cores; 0 = no limit known
}

// Call is a directed edge of the call graph: From sends requests to To.
type Call struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Topology is what exists: nodes, replicas, who calls whom and how far the
// nodes are from each other. It is a value; policies must not change it.
type Topology struct {
	Nodes    []Node
	Replicas []Replica
	Calls    []Call
	// RTT[i][j] is the round-trip time from Nodes[i] to Nodes[j], or
	// Unmeasured. The matrix need not be symmetric.
	RTT [][]time.Duration
}

// Components lists the components in the order in which their first replica
// appears.
func (t Topology) Components() []string {
	var names []string
	seen := map[string]bool{}
	for _, r := range t.Replicas {
		if !seen[r.Component] {
			seen[r.Component] = true
			names = append(names, r.Component)
		}
	}
	return names
}

// NodeIndex maps a node's name to its row in RTT.
func (t Topology) NodeIndex() map[string]int {
	index := make(map[string]int, len(t.Nodes))
	for i, n := range t.Nodes {
		index[n.Name] = i
	}
	return index
}

// Validate reports every fault of the topology at once, joined.
func (t Topology) Validate() error {
	var errs []error
	nodes := map[string]bool{}
	for _, n := range t.Nodes {
		if nodes[n.Name] {
			errs = append(errs, fmt.Errorf("node %q is listed twice", n.Name))
		}
		nodes[n.Name] = true
	}
	names, components := map[string]bool{}, map[string]bool{}
	for _, r := range t.Replicas {
		if names[r.Name] {
			errs = append(errs, fmt.Errorf("replica %q is listed twice", r.Name))
		}
		if !nodes[r.Node] {
			errs = append(errs, fmt.Errorf("replica %q is on node %q, which is not listed", r.Name, r.Node))
		}
		names[r.Name], components[r.Component] = true, true
	}
	for _, c := range t.Calls {
		for _, end := range []string{c.From, c.To} {
			if !components[end] {
				errs = append(errs, fmt.Errorf("call %s to %s: component %q has no replica", c.From, c.To, end))
			}
		}
	}
	if len(t.RTT) != len(t.Nodes) {
		errs = append(errs, fmt.Errorf("RTT has %d rows for %d nodes", len(t.RTT), len(t.Nodes)))
	}
	for i, row := range t.RTT {
		if len(row) != len(t.Nodes) {
			errs = append(errs, fmt.Errorf("RTT row %d has %d values for %d nodes", i+1, len(row), len(t.Nodes)))
		}
		for j, rtt := range row {
			if rtt < 0 && rtt != Unmeasured {
				errs = append(errs, fmt.Errorf("RTT row %d value %d is negative: %v", i+1, j+1, rtt))
			}
		}
	}
	return errors.Join(errs...)
}
