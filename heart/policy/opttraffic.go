package policy

import (
	"heartbed/heart"
)

// OptTraffic (ICPP 2023): as much traffic as possible stays on its node, each
// callee replica ends up with the same load, and round-trip times play no
// part. Callers on one node share their routes.
var _ = register(Spec{
	Name:    "opttraffic",
	Summary: "OptTraffic: local traffic first, equal load for every replica",
	New:     func(Values) (heart.Policy, error) { return heart.PolicyFunc(optTraffic), nil },
})

func optTraffic(o heart.Observation, m *heart.Meter) (heart.Decision, error) {
	l, err := newLayout(o.Topology)
	if err != nil {
		return heart.Decision{}, err
	}
	table := heart.RoutingTable{Groups: l.nodesToReplicas()}
	nodes := o.Topology.NodeIndex()
	for _, c := range l.calls {
		callers, callees := l.components[c.from].groups, l.replicaGroups(c.to)
		home := make([]int, len(callees))
		for j, g := range callees {
			home[j] = nodes[g.Node]
		}
		for i, amounts := range localFirst(callers, home) {
			route := heart.Route{From: callers[i].name, To: l.components[c.to].name, Balancer: heart.Weighted}
			for j, units := range apportion(amounts, flowUnits) {
				if units > 0 {
					route.Shares = append(route.Shares, heart.Share{To: callees[j].Name, Weight: uint32(units)})
				}
			}
			table.Routes = append(table.Routes, route)
		}
	}
	m.Lap("flow")
	return heart.Decision{Table: table}, nil
}

// localFirst returns what each caller group sends to each callee, in units of
// one caller replica's traffic; home is the node of each callee.
//
// Local pass: callees on a caller's node share its traffic equally, up to the
// need U/D of each. Rest pass: callees still in need, in their order, take
// what is left on the nodes, in the order of the nodes.
func localFirst(callers []group, home []int) [][]float64 {
	const epsilon = 1e-9 // of one replica's traffic; sums of shares are not exact
	replicas, locals := 0, map[int]int{}
	for _, g := range callers {
		replicas += len(g.replicas)
	}
	for _, node := range home {
		locals[node]++
	}
	need := float64(replicas) / float64(len(home))
	got := make([]float64, len(home))
	left := make([]float64, len(callers))
	sent := make([][]float64, len(callers))
	for i, g := range callers {
		sent[i], left[i] = make([]float64, len(home)), float64(len(g.replicas))
		if locals[g.node] == 0 {
			continue
		}
		each := min(need, left[i]/float64(locals[g.node]))
		left[i] -= each * float64(locals[g.node])
		for j, node := range home {
			if node == g.node {
				sent[i][j], got[j] = each, each
			}
		}
	}
	for j := range home {
		for i := 0; i < len(callers) && need-got[j] > epsilon; i++ {
			part := min(left[i], need-got[j])
			sent[i][j] += part
			got[j] += part
			left[i] -= part
		}
	}
	return sent
}
