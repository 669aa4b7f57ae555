package flow

import "slices"

// warmStart turns the last basis into a strongly feasible one for the changed
// numbers. The tree and the sets of empty and full arcs stay; flows and
// potentials are computed anew. Where a tree arc would leave its bounds, or
// could not take a unit more towards the root, it is fixed at the bound it
// broke and leaves the tree; its lower end goes on the root by an artificial
// arc that carries the difference. The simplex method drives those out again.
func (s *Solver) warmStart(n *Network, bigM int64) {
	s.takeArcs(n)
	s.reload(n)
	s.order = s.order[:0]
	for v := s.thread[s.root()]; v != s.root(); v = s.thread[v] {
		s.order = append(s.order, v)
	}
	for _, v := range slices.Backward(s.order) {
		node := &s.nodes[v]
		surplus, parent := s.excess[v], node.parent
		passed, ok := s.carry(node, v, surplus, n)
		if ok {
			s.excess[parent] += surplus
			continue
		}
		s.excess[parent] += passed
		arc, up, down := artificial(surplus - passed)
		s.rehang(v, v, s.root(), arc, up, down)
	}
	s.price(bigM)
}

// reload takes over costs, and what flows outside the tree as excess of the nodes.
func (s *Solver) reload(n *Network) {
	if cap(s.excess) < len(s.nodes) {
		s.excess = make([]int64, len(s.nodes))
	}
	s.excess = s.excess[:len(s.nodes)]
	copy(s.excess, n.supply)
	s.excess[s.root()] = 0
	for e := range s.arcs {
		a := &s.arcs[e]
		if !s.full[e] {
			a.cost = n.cost[e]
			continue
		}
		a.cost = -n.cost[e]
		if n.cap[e] == Unlimited {
			s.turn(int32(e))
			continue
		}
		s.excess[n.from[e]] -= n.cap[e]
		s.excess[n.to[e]] += n.cap[e]
	}
	// A tree arc carries what its subtree leaves over, whichever way it was
	// turned; what it was counted with above is taken back.
	for v := range n.supply {
		e := s.nodes[v].arc
		if e >= 0 && s.full[e] {
			s.excess[n.from[e]] += n.cap[e]
			s.excess[n.to[e]] -= n.cap[e]
			s.turn(e)
		}
	}
}

// carry sends surplus from v up its arc and reports whether the arc can, with
// room to spare towards the root. If not, the arc is fixed at the bound nearest
// to what was asked, and passed is what still goes up it (negative: comes down).
func (s *Solver) carry(node *treeNode, v int32, surplus int64, n *Network) (passed int64, ok bool) {
	e := node.arc
	switch {
	case e == artificialUp || e == artificialDown:
		return 0, false // rehung in the direction that suits the surplus
	case n.from[e] == v:
		limit := n.cap[e]
		if surplus >= 0 && surplus < limit {
			node.up, node.down = less(limit, surplus), surplus
			return surplus, true
		}
		if surplus < 0 {
			return 0, false
		}
		s.turn(e)
		return limit, false
	default:
		limit := n.cap[e]
		if surplus < 0 && -surplus <= limit {
			node.up, node.down = -surplus, less(limit, -surplus)
			return surplus, true
		}
		if surplus >= 0 {
			return 0, false
		}
		s.turn(e)
		return -limit, false
	}
}
