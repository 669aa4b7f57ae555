package policy

import (
	"cmp"
	"fmt"
	"slices"

	"heartbed/heart"
	"heartbed/heart/flow"
)

// transport is one call as a transport problem: whole units from the groups of
// the caller to those of the callee, over links that cost their round-trip
// time. It is the second half of HEART's second stage (NTAM).
type transport struct {
	from, to       component
	supply, demand []int64 // of each group; both have one sum
	delay          delays
	ranked         []link // node pairs, see rank
	traceLinks     int

	// Set by the filter.
	open                    []uint64 // by caller group: the callee groups it may send to, as bits
	start                   []link
	high, removed, restored []heart.LinkName
	filtered                int // links of the slow cluster, listed or not

	// Set by solve.
	sent [][]heart.Share // by caller group
	cost int64           // microseconds times units
}

func (p *transport) links() int { return len(p.from.groups) * len(p.to.groups) }

// solve finds the flow of least total delay over the open links.
//
// Few of the many links are ever used, so the solver is given the near ones
// first. A link left out is worth adding only if its reduced cost is negative;
// when there is none, the potentials prove the flow optimal over all links
// (column generation).
func (p *transport) solve() error {
	rows := len(p.supply)
	network := flow.New(rows+len(p.demand), len(p.start))
	for _, units := range p.supply {
		network.AddNode(units)
	}
	for _, units := range p.demand {
		network.AddNode(-units)
	}
	var solver flow.Solver // goes on from its last basis
	for arcs, added := p.start, p.start; ; arcs = append(arcs, added...) {
		for _, l := range added {
			network.AddArc(int(l.row), rows+int(l.col), flow.Unlimited, l.us)
		}
		solution, err := solver.Solve(network)
		if err != nil {
			return fmt.Errorf("call %s to %s: %w", p.from.name, p.to.name, err)
		}
		if added = p.cheaper(solution.Potential); len(added) == 0 {
			p.read(arcs, solution)
			return nil
		}
	}
}

// cheaper returns, for each caller group, the open link of least reduced cost,
// if that is negative.
func (p *transport) cheaper(potential []int64) []link {
	var found []link
	words := (len(p.demand) + 63) / 64
	home := make([]int32, len(p.demand)) // on its own, as this loop looks at every link
	for j, to := range p.to.groups {
		home[j] = int32(to.node)
	}
	callers, callees := potential[:len(p.supply)], potential[len(p.supply):]
	for i, from := range p.from.groups {
		us, open := p.delay.from(from.node), p.open[i*words:(i+1)*words]
		least, best := -callers[i], -1
		for j, node := range home {
			if r := us[node] - callees[j]; r < least && open[j/64]>>(j%64)&1 == 1 {
				least, best = r, j
			}
		}
		if best >= 0 {
			found = append(found, link{us[home[best]], int32(i), int32(best)})
		}
	}
	return found
}

// read takes the shares of each caller group off the flow, in the order of the
// callee groups.
func (p *transport) read(arcs []link, s *flow.Solution) {
	var used []int
	for k, units := range s.Flow {
		if units > 0 {
			used = append(used, k)
		}
	}
	slices.SortFunc(used, func(a, b int) int {
		return cmp.Or(cmp.Compare(arcs[a].row, arcs[b].row), cmp.Compare(arcs[a].col, arcs[b].col))
	})
	p.cost, p.sent = s.Cost, make([][]heart.Share, len(p.supply))
	for _, k := range used {
		l := arcs[k]
		p.sent[l.row] = append(p.sent[l.row], heart.Share{To: p.to.groups[l.col].name, Weight: uint32(s.Flow[k])})
	}
}

// routes are the solved call as a table lists it.
func (p *transport) routes() []heart.Route {
	routes := make([]heart.Route, len(p.sent))
	for i, shares := range p.sent {
		routes[i] = heart.Route{From: p.from.groups[i].name, To: p.to.name, Balancer: heart.Weighted, Shares: shares}
	}
	return routes
}

func (p *transport) trace() heart.PairTrace {
	units := int64(0)
	for _, s := range p.supply {
		units += s
	}
	return heart.PairTrace{
		From: p.from.name, To: p.to.name, High: p.high, Removed: p.removed, Restored: p.restored,
		Feasible: true, // links have no capacity: unfiltered, they carry any shares
		CostMs:   float64(p.cost) / float64(units) / 1000,
	}
}
