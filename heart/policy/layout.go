package policy

import (
	"fmt"
	"slices"

	"heartbed/heart"
)

// layout is a topology indexed for allocation: components in the order of
// their first replica, and the groups of each in the order of the nodes.
type layout struct {
	topology   heart.Topology
	components []component
	calls      []call // each once
}

// call is a heart.Call by the index of its components.
type call struct{ from, to int }

type component struct {
	name     string
	replicas []string // in the order of groups
	index    []int32  // of each in topology.Replicas
	groups   []group
	calls    bool // it calls some component
	called   bool // some component calls it
}

// group is the replicas of one component on one node.
type group struct {
	name     string // "e@n1"
	node     int
	replicas []string
	index    []int32
}

// newLayout indexes a topology in O(replicas + components * nodes). A topology
// that cannot be indexed is reported with all its faults.
func newLayout(t heart.Topology) (layout, error) {
	l := layout{topology: t}
	nodes := t.NodeIndex()
	components := map[string]int{}
	slot := make([]int32, len(t.Replicas)) // component * nodes + node
	sound := len(nodes) == len(t.Nodes)
	for i, r := range t.Replicas {
		c, seen := components[r.Component]
		if !seen {
			c = len(l.components)
			components[r.Component] = c
			l.components = append(l.components, component{name: r.Component})
		}
		n, known := nodes[r.Node]
		sound = sound && known
		slot[i] = int32(c*len(t.Nodes) + n)
	}
	callSeen := map[call]bool{}
	for _, c := range t.Calls {
		from, fromKnown := components[c.From]
		to, toKnown := components[c.To]
		if sound = sound && fromKnown && toKnown; !sound || callSeen[call{from, to}] {
			continue
		}
		callSeen[call{from, to}] = true
		l.calls = append(l.calls, call{from, to})
		l.components[from].calls, l.components[to].called = true, true
	}
	if !sound || !squareRTT(t) {
		return layout{}, fmt.Errorf("topology: %w", t.Validate())
	}
	l.fillGroups(slot)
	return l, nil
}

func squareRTT(t heart.Topology) bool {
	if len(t.RTT) != len(t.Nodes) {
		return false
	}
	for _, row := range t.RTT {
		if len(row) != len(t.Nodes) {
			return false
		}
		for _, rtt := range row {
			if rtt < 0 && rtt != heart.Unmeasured {
				return false
			}
		}
	}
	return true
}

// fillGroups sorts the replicas by slot (counting sort, stable) and cuts the
// sorted lists into groups and components. All share two backing arrays.
func (l *layout) fillGroups(slot []int32) {
	t, nodes := l.topology, len(l.topology.Nodes)
	start := make([]int32, len(l.components)*nodes+1)
	for _, s := range slot {
		start[s+1]++
	}
	for s := range len(start) - 1 {
		start[s+1] += start[s]
	}
	names, index := make([]string, len(slot)), make([]int32, len(slot))
	next := append([]int32(nil), start...)
	for i, s := range slot {
		names[next[s]], index[next[s]] = t.Replicas[i].Name, int32(i)
		next[s]++
	}
	for c := range l.components {
		comp := &l.components[c]
		first, last := start[c*nodes], start[(c+1)*nodes]
		comp.replicas, comp.index = names[first:last:last], index[first:last:last]
		for n := range nodes {
			a, b := start[c*nodes+n], start[c*nodes+n+1]
			if a == b {
				continue
			}
			comp.groups = append(comp.groups, group{
				name: comp.name + "@" + t.Nodes[n].Name, node: n,
				replicas: names[a:b:b], index: index[a:b:b],
			})
		}
	}
}

// nodeGroups are the groups of a component as a table lists them.
func (c component) nodeGroups() []heart.Group {
	groups := make([]heart.Group, len(c.groups))
	for i, g := range c.groups {
		node := g.name[len(c.name)+1:]
		groups[i] = heart.Group{Name: g.name, Component: c.name, Node: node, Replicas: g.replicas}
	}
	return groups
}

// replicaGroups are the replicas of a component, each a group of its own, in
// the order of the topology, which decides ties.
func (l layout) replicaGroups(c int) []heart.Group {
	comp := l.components[c]
	order := slices.Clone(comp.index)
	slices.Sort(order)
	groups, names := make([]heart.Group, len(order)), make([]string, len(order))
	for i, at := range order {
		r := l.topology.Replicas[at]
		names[i] = r.Name
		groups[i] = heart.Group{Name: r.Name, Component: r.Component, Node: r.Node, Replicas: names[i : i+1 : i+1]}
	}
	return groups
}

// byNode lists the groups of every component by node.
func (l layout) byNode() []heart.Group {
	var groups []heart.Group
	for _, c := range l.components {
		groups = append(groups, c.nodeGroups()...)
	}
	return groups
}

// nodesToReplicas lists every component by node, to call from, and every
// called component by replica, to be called as.
func (l layout) nodesToReplicas() []heart.Group {
	groups := l.byNode()
	for c, comp := range l.components {
		if comp.called {
			groups = append(groups, l.replicaGroups(c)...)
		}
	}
	return groups
}

// wholeComponents routes every call from one group of all callers to one group
// of all callees.
func (l layout) wholeComponents(b heart.Balancer) heart.RoutingTable {
	var table heart.RoutingTable
	for _, c := range l.components {
		g := heart.Group{Name: c.name, Component: c.name, Replicas: c.replicas}
		if len(c.groups) == 1 {
			g.Node = l.topology.Nodes[c.groups[0].node].Name
		}
		table.Groups = append(table.Groups, g)
	}
	for _, c := range l.calls {
		to := l.components[c.to].name
		table.Routes = append(table.Routes, heart.Route{
			From: l.components[c.from].name, To: to, Balancer: b,
			Shares: []heart.Share{{To: to, Weight: 1}},
		})
	}
	return table
}

// allReplicas routes each call by whole component; the balancer of the caller
// decides everything.
func allReplicas(b heart.Balancer) heart.Policy {
	return heart.PolicyFunc(func(o heart.Observation, m *heart.Meter) (heart.Decision, error) {
		l, err := newLayout(o.Topology)
		if err != nil {
			return heart.Decision{}, err
		}
		table := l.wholeComponents(b)
		m.Lap("flow")
		return heart.Decision{Table: table}, nil
	})
}
