package policy

import (
	"errors"
	"fmt"
	"time"

	"heartbed/heart"
	"heartbed/heart/flow"
)

// LATA (ICSOC 2024) minimises the mean network delay of each call while every
// replica of the callee gets the same load. It works replica by replica, so a
// call of U to D replicas is a transport problem with U*D links.
var _ = register(Spec{
	Name:    "lata",
	Summary: "LATA: least network delay at equal load for every replica",
	Params: []Param{
		{"supply", "100", "units of traffic a caller replica sends; the shares are multiples of one unit"},
		{"truncate", "off", "cost of a link in whole milliseconds rounded down, as the authors' code has it; off = microseconds, without which nodes less than 1 ms apart all look alike"},
	},
	New: func(v Values) (heart.Policy, error) {
		p := lata{supply: int64(v.Int("supply", 1, 1_000_000)), unit: time.Microsecond}
		if v.On("truncate") {
			p.unit = time.Millisecond
		}
		return p, nil
	},
})

type lata struct {
	supply int64
	unit   time.Duration // of a cost
}

func (p lata) Allocate(o heart.Observation, m *heart.Meter) (heart.Decision, error) {
	l, err := newLayout(o.Topology)
	if err != nil {
		return heart.Decision{}, err
	}
	d, nodes := newDelays(o.Topology), o.Topology.NodeIndex()
	for i := range d.us { // here rather than at each of the many links
		d.us[i] /= int64(p.unit / time.Microsecond)
	}
	groups := make([][]heart.Group, len(l.components))
	var table heart.RoutingTable
	for c := range l.components {
		groups[c] = l.replicaGroups(c)
		table.Groups = append(table.Groups, groups[c]...)
	}
	routes := make([][]heart.Route, len(l.calls))
	work := 0
	for _, c := range l.calls {
		work += len(groups[c.from]) * len(groups[c.to])
	}
	errs := make([]error, len(l.calls))
	each(len(l.calls), work, func(k int) {
		from, to := l.calls[k].from, l.calls[k].to
		var err error
		if routes[k], err = p.routes(groups[from], groups[to], nodes, d); err != nil {
			errs[k] = fmt.Errorf("call %s to %s: %w", l.components[from].name, l.components[to].name, err)
		}
	})
	if err := errors.Join(errs...); err != nil {
		return heart.Decision{}, err
	}
	for _, r := range routes {
		table.Routes = append(table.Routes, r...)
	}
	m.Lap("flow")
	return heart.Decision{Table: table, Warnings: d.warnings()}, nil
}

// routes solves one call at costs d. Demands differ by one unit at most; the first
// callees take what does not divide.
func (p lata) routes(callers, callees []heart.Group, nodes map[string]int, d delays) ([]heart.Route, error) {
	network := flow.New(len(callers)+len(callees), len(callers)*len(callees))
	for range callers {
		network.AddNode(p.supply)
	}
	total := p.supply * int64(len(callers))
	demand, rest := total/int64(len(callees)), total%int64(len(callees))
	home := make([]int, len(callees))
	for j, g := range callees {
		home[j] = nodes[g.Node]
		if int64(j) < rest {
			network.AddNode(-demand - 1)
		} else {
			network.AddNode(-demand)
		}
	}
	for i, g := range callers {
		from := nodes[g.Node]
		for j := range callees {
			network.AddArc(i, len(callers)+j, flow.Unlimited, d.between(from, home[j]))
		}
	}
	solution, err := network.Solve()
	if err != nil {
		return nil, err
	}
	routes := make([]heart.Route, len(callers))
	for i, g := range callers {
		routes[i] = heart.Route{From: g.Name, To: callees[0].Component, Balancer: heart.Weighted}
		for j, units := range solution.Flow[i*len(callees) : (i+1)*len(callees)] {
			if units > 0 {
				routes[i].Shares = append(routes[i].Shares, heart.Share{To: callees[j].Name, Weight: uint32(units)})
			}
		}
	}
	return routes, nil
}
