package istio

import "heartbed/heart"

// ByNode is a table of d on two nodes and of e on three; a row of weights is
// one group of d's. The groups' pods are d-1 and d-2, e-1 to e-4.
func ByNode(weights ...[3]uint32) heart.RoutingTable {
	rt := heart.RoutingTable{Groups: []heart.Group{
		{Name: "d@n1", Component: "d", Node: "n1", Replicas: []string{"d-1"}},
		{Name: "d@n2", Component: "d", Node: "n2", Replicas: []string{"d-2"}},
		{Name: "e@n1", Component: "e", Node: "n1", Replicas: []string{"e-1"}},
		{Name: "e@n2", Component: "e", Node: "n2", Replicas: []string{"e-2", "e-3"}},
		{Name: "e@n3", Component: "e", Node: "n3", Replicas: []string{"e-4"}},
	}}
	for i, w := range weights {
		r := heart.Route{From: rt.Groups[i].Name, To: "e", Balancer: heart.Weighted}
		for j, g := range rt.Groups[2:] {
			r.Shares = append(r.Shares, heart.Share{To: g.Name, Weight: w[j]})
		}
		rt.Routes = append(rt.Routes, r)
	}
	return rt
}
