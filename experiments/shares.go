package experiments

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// replicaPair is a caller and a callee replica.
type replicaPair struct{ from, to string }

// shares sets the requests that really went from group to group in [from, to)
// of the session beside what the tables in force then intended, weighted by
// their time. Requests on no route of the last table (clients to the entry, for
// one) are listed by replica, without an intention.
func shares(m testbed.Measurement, from, to time.Duration) []Share {
	seen := map[replicaPair]int64{}
	total := map[replicaPair]int64{} // caller replica, callee component
	for _, s := range m.Seen {
		seen[replicaPair{s.From.Name, s.To.Name}] += s.Requests
		total[replicaPair{s.From.Name, s.To.Component}] += s.Requests
	}
	var list []Share
	covered := map[replicaPair]bool{}
	if len(m.Tables) > 0 {
		list = routedShares(m.Tables[len(m.Tables)-1].Table, intentions(m.Tables, from, to), seen, total, covered)
	}
	for _, s := range m.Seen {
		if pair := (replicaPair{s.From.Name, s.To.Name}); !covered[pair] {
			covered[pair] = true
			list = append(list, Share{From: pair.from, To: pair.to, Requests: seen[pair],
				Seen: float64(seen[pair]) / float64(max(1, total[replicaPair{pair.from, s.To.Component}]))})
		}
	}
	return list
}

// link is a caller and a callee group.
type link struct{ from, to string }

// intentions gives the share of a caller group's requests that a callee group
// should have had in [from, to), by the tables in force. A table is in force
// until the next one; where none was, the last one counts.
func intentions(tables []testbed.TimedTable, from, to time.Duration) map[link]float64 {
	intended := map[link]float64{}
	add := func(table heart.RoutingTable, part float64) {
		for _, route := range table.Routes {
			weights := 0.0
			for _, s := range route.Shares {
				weights += float64(s.Weight)
			}
			for _, s := range route.Shares {
				intended[link{route.From, s.To}] += part * float64(s.Weight) / max(1, weights)
			}
		}
	}
	var inForce time.Duration
	for i, t := range tables {
		end := to
		if i+1 < len(tables) {
			end = min(to, tables[i+1].At)
		}
		if d := end - max(t.At, from); d > 0 {
			inForce += d
			add(t.Table, float64(d))
		}
	}
	if inForce == 0 {
		add(tables[len(tables)-1].Table, 1)
		return intended
	}
	for l := range intended {
		intended[l] /= float64(inForce)
	}
	return intended
}

func routedShares(table heart.RoutingTable, intended map[link]float64, seen, total map[replicaPair]int64, covered map[replicaPair]bool) []Share {
	groups := groupsByName(table)
	var list []Share
	for _, route := range table.Routes {
		var all int64
		for _, from := range groups[route.From].Replicas {
			all += total[replicaPair{from, route.To}]
		}
		for _, s := range route.Shares {
			share := intended[link{route.From, s.To}]
			row := Share{From: route.From, To: s.To, Intended: &share}
			for _, from := range groups[route.From].Replicas {
				for _, to := range groups[s.To].Replicas {
					covered[replicaPair{from, to}] = true
					row.Requests += seen[replicaPair{from, to}]
				}
			}
			row.Seen = float64(row.Requests) / float64(max(1, all))
			if share > 0 || row.Requests > 0 {
				list = append(list, row)
			}
		}
	}
	return list
}

func groupsByName(table heart.RoutingTable) map[string]heart.Group {
	groups := make(map[string]heart.Group, len(table.Groups))
	for _, g := range table.Groups {
		groups[g.Name] = g
	}
	return groups
}

// sharesOverTime follows the requests that enter an application through each
// table and gives the part of every component's requests that reaches each
// node. It assumes that the entry's replicas are asked equally when there is
// no gateway, that a call is made as often as the application says, and that
// the replicas of a group are asked equally.
func sharesOverTime(p testbed.Plan, tables []testbed.TimedTable) []ShareAt {
	topology := p.Topology()
	order := callOrder(topology)
	var list []ShareAt
	for _, t := range tables {
		supply := follow(p, topology, order, t.Table)
		for _, component := range order {
			if component == testbed.GatewayComponent {
				continue
			}
			byNode, total := map[string]float64{}, 0.0
			for _, r := range topology.Replicas {
				if r.Component == component {
					byNode[r.Node] += supply[r.Name]
					total += supply[r.Name]
				}
			}
			for _, node := range slices.Sorted(maps.Keys(byNode)) {
				if total > 0 {
					list = append(list, ShareAt{AtSeconds: t.At.Seconds(), Component: component, Node: node, Share: byNode[node] / total})
				}
			}
		}
	}
	return list
}

// follow gives the requests each replica receives for one request from
// outside.
func follow(p testbed.Plan, t heart.Topology, order []string, table heart.RoutingTable) map[string]float64 {
	replicas := map[string][]string{}
	for _, r := range t.Replicas {
		replicas[r.Component] = append(replicas[r.Component], r.Name)
	}
	supply := map[string]float64{}
	for _, name := range replicas[order[0]] {
		supply[name] = 1 / float64(len(replicas[order[0]]))
	}
	rates := callRates(p.App)
	rates[heart.Call{From: testbed.GatewayComponent, To: p.App.Entry}] = 1
	groups := groupsByName(table)
	for _, component := range order {
		for _, route := range table.Routes {
			from := groups[route.From]
			if from.Component != component {
				continue
			}
			requests, weights := 0.0, 0.0
			for _, name := range from.Replicas {
				requests += supply[name] * rates[heart.Call{From: component, To: route.To}]
			}
			for _, s := range route.Shares {
				weights += float64(s.Weight)
			}
			for _, s := range route.Shares {
				to := groups[s.To].Replicas
				for _, name := range to {
					supply[name] += requests * float64(s.Weight) / weights / float64(len(to))
				}
			}
		}
	}
	return supply
}

// callRates gives how often a component calls another for one request of its
// own.
func callRates(a workloads.Application) map[heart.Call]float64 {
	rates := map[heart.Call]float64{}
	for _, c := range a.Components {
		for _, s := range c.Steps {
			made := cmp.Or(s.Probability, 1)
			for _, to := range s.Call {
				rates[heart.Call{From: c.Name, To: to}] += made
			}
			for to, chosen := range s.Choose {
				rates[heart.Call{From: c.Name, To: to}] += made * chosen
			}
		}
	}
	return rates
}

// callOrder lists the components so that each comes after its callers, the
// one that nobody calls first. The call graph has no cycle.
func callOrder(t heart.Topology) []string {
	var order []string
	done := map[string]bool{}
	var visit func(string)
	visit = func(component string) {
		if done[component] {
			return
		}
		done[component] = true
		for _, c := range t.Calls {
			if c.From == component {
				visit(c.To)
			}
		}
		order = append(order, component)
	}
	for _, c := range t.Components() {
		visit(c)
	}
	slices.Reverse(order)
	return order
}
