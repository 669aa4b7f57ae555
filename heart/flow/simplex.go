package flow

import (
	"fmt"
	"math"
	"slices"
)

// arc is an arc in the direction in which it has residual capacity outside the
// tree: as given when it is empty, turned round (with negative cost) when it is
// full. The pivot search then has one question, whether the reduced cost is
// negative, and need not know states; an arc of the tree has reduced cost 0.
type arc struct {
	from, to int32
	cost     int64
}

// Solver solves minimum cost flows by the primal network simplex method with
// block search (Ahuja, Magnanti, Orlin, "Network Flows", 1993, chapter 11;
// Kelly and O'Neill 1991). It keeps its buffers and its last basis: solving the
// same Network again after SetSupply, SetCap, SetCost and AddArc starts there,
// which also serves column generation: solve over few arcs, add those of
// negative reduced cost, go on.
// The answer is optimal either way, but among several optimal flows the start
// decides which is found. The zero value is ready; it is not safe for
// concurrent use.
type Solver struct {
	tree
	arcs []arc
	full []bool // which arcs of the network are turned round

	network *Network // whose basis this is; nil if none
	order   []int32  // nodes, parents before children: scratch of the warm start
	excess  []int64  // scratch of the warm start
}

// Solve returns a minimum cost flow. Errors: ErrInvalid, ErrOverflow,
// ErrInfeasible, ErrUnbounded; a network that is infeasible is never reported
// as unbounded.
func (n *Network) Solve() (*Solution, error) { return new(Solver).Solve(n) }

// Solve is Network.Solve with a warm start where the last network solved was
// this one and it has no more nodes than then.
func (s *Solver) Solve(n *Network) (*Solution, error) {
	lim, err := n.check()
	if err != nil {
		return nil, err
	}
	// A unit that could take real arcs must never prefer two artificial ones.
	bigM := int64(len(n.supply))*lim.maxCost + 1
	if s.network == n && len(s.nodes) == len(n.supply)+1 {
		s.warmStart(n, bigM)
	} else {
		s.coldStart(n, bigM)
	}
	s.network = n
	if err := s.run(n.cap); err != nil {
		if routed, total, e := n.Routable(); e == nil && routed < total {
			return nil, infeasible(total-routed, total)
		}
		return nil, err
	}
	return s.solution(n, lim)
}

// coldStart makes the all-artificial basis.
func (s *Solver) coldStart(n *Network, bigM int64) {
	s.reset(len(n.supply))
	for v, b := range n.supply {
		node := &s.nodes[v]
		node.arc, node.up, node.down = artificial(b)
	}
	s.price(bigM)
	s.arcs, s.full = s.arcs[:0], s.full[:0]
	s.takeArcs(n)
}

// takeArcs adds the arcs of n that the solver does not have yet, empty and
// outside the tree.
func (s *Solver) takeArcs(n *Network) {
	have, want := len(s.arcs), len(n.from)
	s.arcs = slices.Grow(s.arcs, want-have)[:want]
	s.full = slices.Grow(s.full, want-have)[:want]
	clear(s.full[have:])
	for e := have; e < want; e++ {
		s.arcs[e] = arc{n.from[e], n.to[e], n.cost[e]}
	}
}

// artificial returns the artificial arc, and its residual capacities, for a
// node with that many units too many.
func artificial(surplus int64) (arc int32, up, down int64) {
	if surplus >= 0 {
		return artificialUp, Unlimited, surplus
	}
	return artificialDown, -surplus, Unlimited
}

// price computes the potentials of the tree from the root down.
func (s *Solver) price(bigM int64) {
	for v := s.thread[s.root()]; v != s.root(); v = s.thread[v] {
		above := s.potential[s.nodes[v].parent]
		switch e := s.nodes[v].arc; {
		case e == artificialUp:
			s.potential[v] = above - bigM
		case e == artificialDown:
			s.potential[v] = above + bigM
		case s.arcs[e].from == v:
			s.potential[v] = above - s.arcs[e].cost
		default:
			s.potential[v] = above + s.arcs[e].cost
		}
	}
}

// run pivots until no arc has a negative reduced cost.
func (s *Solver) run(caps []int64) error {
	for at := 0; ; {
		e, next := s.entering(at)
		if e < 0 {
			return nil
		}
		at = next
		if err := s.pivot(int32(e), caps); err != nil {
			return err
		}
	}
}

// entering searches block by block from arc at, wrapping round, and returns the
// arc of least reduced cost in the first block that has a negative one, and
// where the next search starts. It returns -1 if there is none.
func (s *Solver) entering(at int) (best, next int) {
	const minBlock = 10
	size := max(int(math.Sqrt(float64(len(s.arcs)))), minBlock)
	for left := len(s.arcs); left > 0; {
		end := min(at+size, len(s.arcs), at+left)
		best, start := cheapest(s.arcs[at:end], s.potential), at
		left -= end - at
		if at = end; at == len(s.arcs) {
			at = 0
		}
		if best >= 0 {
			return start + best, at
		}
	}
	return -1, at
}

// cheapest returns the position of the least negative reduced cost, -1 if there
// is none. Half the time of a solve is spent here: on its own the loop keeps all
// it needs in registers, and the early continue makes the compiler branch, which
// is faster than its conditional moves because a new minimum is rare.
//
//go:noinline
func cheapest(arcs []arc, potential []int64) int {
	least, best := int64(0), -1
	for k := range arcs {
		a := &arcs[k]
		r := a.cost + potential[a.from] - potential[a.to]
		if r >= least {
			continue
		}
		least, best = r, k
	}
	return best
}

// pivot pushes as much as possible along the cycle that arc e closes with the
// tree, and exchanges e for the arc that blocks.
func (s *Solver) pivot(e int32, caps []int64) error {
	in := s.arcs[e]
	reduced := in.cost + s.potential[in.from] - s.potential[in.to]
	delta, out, below, apex := s.blocking(in.from, in.to, caps[e])
	if delta == Unlimited {
		return fmt.Errorf("%w: arc %d closes a cycle of negative cost without capacity", ErrUnbounded, e)
	}
	if delta > 0 {
		s.push(in.from, in.to, apex, delta)
	}
	if out == none { // from empty to full or back, the tree stays
		s.turn(e)
		return nil
	}
	s.leave(out, below)
	forward := less(caps[e], delta)
	if below {
		s.rehang(in.from, out, in.to, e, forward, delta)
		s.shift(in.from, -reduced)
	} else {
		s.rehang(in.to, out, in.from, e, delta, forward)
		s.shift(in.to, reduced)
	}
	return nil
}

// leave gives the arc above v, which leaves the tree, the direction in which it
// has residual capacity: up if the way down is what blocked, and otherwise down.
func (s *Solver) leave(v int32, downBlocked bool) {
	e := s.nodes[v].arc
	if e < 0 {
		return
	}
	if up := s.arcs[e].from == v; up != downBlocked {
		s.turn(e)
	}
}

// turn turns an arc round.
func (s *Solver) turn(e int32) {
	a := &s.arcs[e]
	a.from, a.to, a.cost = a.to, a.from, -a.cost
	s.full[e] = !s.full[e]
}

// solution reads the flow off the basis.
func (s *Solver) solution(n *Network, lim limits) (*Solution, error) {
	sol := &Solution{Flow: make([]int64, len(n.from)), Potential: make([]int64, len(n.supply))}
	for e, full := range s.full {
		if full {
			sol.Flow[e] = n.cap[e]
		}
	}
	var stuck int64
	for v := range n.supply {
		node := &s.nodes[v]
		sol.Potential[v] = s.potential[v] - s.potential[0]
		switch e := node.arc; {
		case e == artificialUp:
			stuck += node.down
		case e == artificialDown:
		case n.from[e] == int32(v):
			sol.Flow[e] = node.down
		default:
			sol.Flow[e] = node.up
		}
	}
	if stuck > 0 {
		return nil, infeasible(stuck, lim.supply)
	}
	cost, err := totalCost(n.cost, sol.Flow)
	if err != nil {
		return nil, err
	}
	sol.Cost = cost
	return sol, nil
}

func infeasible(stuck, total int64) error {
	return fmt.Errorf("%w: %d of %d units cannot be routed", ErrInfeasible, stuck, total)
}
