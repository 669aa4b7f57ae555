package policy

import "heartbed/heart"

// kube-proxy in iptables mode: rule i of n takes a connection with probability
// 1/(n-i), which is uniform, and conntrack keeps the connection on its
// replica (kubernetes pkg/proxy/iptables).
var _ = register(Spec{
	Name:    "kubeproxy",
	Summary: "default Kubernetes: a replica at random for each connection",
	Params: []Param{
		{"per", "connection", "what draws a replica: connection, or request as if every request opened one"},
	},
	New: func(v Values) (heart.Policy, error) {
		if v.OneOf("per", "connection", "request") == "request" {
			return heart.PolicyFunc(uniformPerRequest), nil
		}
		return allReplicas(heart.PerConnection), nil
	},
})

// uniformPerRequest gives every replica a group of its own and equal weight.
func uniformPerRequest(o heart.Observation, m *heart.Meter) (heart.Decision, error) {
	l, err := newLayout(o.Topology)
	if err != nil {
		return heart.Decision{}, err
	}
	table := heart.RoutingTable{Groups: l.nodesToReplicas()}
	for _, c := range l.calls {
		callee := l.components[c.to]
		for _, from := range l.components[c.from].groups {
			route := heart.Route{From: from.name, To: callee.name, Balancer: heart.Weighted}
			for _, name := range callee.replicas {
				route.Shares = append(route.Shares, heart.Share{To: name, Weight: 1})
			}
			table.Routes = append(table.Routes, route)
		}
	}
	m.Lap("flow")
	return heart.Decision{Table: table}, nil
}
