package policy

import "heartbed/heart"

// Localization as the motivation runs of LATA use it: every caller sends
// everything to its nearest replica; the first of several equally near ones
// wins. A link nobody measured is farther than any other, but a caller with
// no measured link still gets a replica.
var _ = register(Spec{
	Name:    "localization",
	Summary: "everything to the nearest replica by round-trip time",
	Params: []Param{
		{"to", "replica", "what is nearest: one replica, or all the replicas of its node"},
	},
	New: func(v Values) (heart.Policy, error) {
		toNode := v.OneOf("to", "replica", "node") == "node"
		return heart.PolicyFunc(func(o heart.Observation, m *heart.Meter) (heart.Decision, error) {
			return localize(o, m, toNode)
		}), nil
	},
})

func localize(o heart.Observation, m *heart.Meter, toNode bool) (heart.Decision, error) {
	l, err := newLayout(o.Topology)
	if err != nil {
		return heart.Decision{}, err
	}
	d := newDelays(o.Topology)
	table := heart.RoutingTable{Groups: l.byNode()}
	if !toNode {
		table.Groups = l.nodesToReplicas()
	}
	nodes := o.Topology.NodeIndex()
	for _, c := range l.calls {
		callees := l.components[c.to].nodeGroups()
		if !toNode {
			callees = l.replicaGroups(c.to)
		}
		for _, from := range l.components[c.from].groups {
			nearest := 0
			for i, g := range callees {
				if d.nearer(from.node, nodes[g.Node], nodes[callees[nearest].Node]) {
					nearest = i
				}
			}
			table.Routes = append(table.Routes, heart.Route{
				From: from.name, To: l.components[c.to].name, Balancer: heart.Weighted,
				Shares: []heart.Share{{To: callees[nearest].Name, Weight: 1}},
			})
		}
	}
	m.Lap("flow")
	return heart.Decision{Table: table, Warnings: d.warnings()}, nil
}

// nearer tells whether a is measured and strictly nearer to from than b.
func (d delays) nearer(from, a, b int) bool {
	if !d.known(from, a) || !d.known(from, b) {
		return d.known(from, a) && !d.known(from, b)
	}
	return d.between(from, a) < d.between(from, b)
}
