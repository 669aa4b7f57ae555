package flow

import (
	"errors"
	"fmt"
)

// MaxFlowResult is a maximum flow and the proof that it is one: the capacities
// of the arcs from the source side to the other nodes add up to Value.
type MaxFlowResult struct {
	Value      int64   // units from source to sink
	Flow       []int64 // units on each arc
	SourceSide []bool  // for each node, whether it is on the source's side of a minimum cut
}

// MaxFlow returns the largest flow from source to sink within the capacities;
// supplies and costs play no part. It uses Dinic's algorithm (1970). Errors:
// ErrInvalid, ErrOverflow, and ErrUnbounded if a path has no capacity bound.
func (n *Network) MaxFlow(source, sink int) (*MaxFlowResult, error) {
	_, errs := n.checkCaps()
	if !n.hasNode(source) || !n.hasNode(sink) || source == sink {
		errs = append(errs, fmt.Errorf("%w: source %d and sink %d must be two of the %d nodes",
			ErrInvalid, source, sink, len(n.supply)))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r := newResidual(len(n.supply), n.from, n.to)
	for e, c := range n.cap {
		r.left[2*e] = c
	}
	value, err := r.maximise(int32(source), int32(sink))
	if err != nil {
		return nil, err
	}
	result := &MaxFlowResult{Value: value, Flow: make([]int64, len(n.from)), SourceSide: make([]bool, len(n.supply))}
	for e := range result.Flow {
		result.Flow[e] = r.left[2*e+1]
	}
	for v, level := range r.level {
		result.SourceSide[v] = level != none
	}
	return result, nil
}

// Routable returns how many of the units that the nodes supply can reach the
// nodes that take units, within the capacities, and how many there are. The
// network is feasible if and only if the two are equal.
func (n *Network) Routable() (routed, total int64, err error) {
	lim, errs := n.checkUnits()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, err
	}
	nodes, arcs := len(n.supply), len(n.from)
	source, sink := int32(nodes), int32(nodes+1)
	from := append(make([]int32, 0, arcs+nodes), n.from...)
	to := append(make([]int32, 0, arcs+nodes), n.to...)
	for v, b := range n.supply {
		if b >= 0 {
			from, to = append(from, source), append(to, int32(v))
		} else {
			from, to = append(from, int32(v)), append(to, sink)
		}
	}
	r := newResidual(nodes+2, from, to)
	for e, c := range n.cap {
		r.left[2*e] = c
	}
	for v, b := range n.supply {
		r.left[2*(arcs+v)] = max(b, -b)
	}
	routed, err = r.maximise(source, sink)
	return routed, lim.supply, err
}

// residual is a residual graph. Arc e of the network is the pair of half arcs
// 2e, as given, and 2e+1, backwards; their residual capacities are in left. An
// Unlimited one stays so.
type residual struct {
	head  []int32 // node a half arc goes to
	left  []int64
	first []int32 // half arcs out of v: out[first[v]:first[v+1]]
	out   []int32

	level []int32 // distance from the source, none if not reached
	next  []int32 // position in out up to which arcs of v lead nowhere
	queue []int32
	path  []int32
}

func newResidual(nodes int, from, to []int32) *residual {
	r := &residual{
		head:  make([]int32, 2*len(from)),
		left:  make([]int64, 2*len(from)),
		first: make([]int32, nodes+1),
		out:   make([]int32, 2*len(from)),
		level: make([]int32, nodes),
		next:  make([]int32, nodes),
	}
	for e := range from {
		r.head[2*e], r.head[2*e+1] = to[e], from[e]
		r.first[from[e]+1]++
		r.first[to[e]+1]++
	}
	for v := range nodes {
		r.first[v+1] += r.first[v]
		r.next[v] = r.first[v]
	}
	for h := range r.head {
		tail := r.head[h^1]
		r.out[r.next[tail]] = int32(h)
		r.next[tail]++
	}
	return r
}

// maximise sends as much as possible. Once no unbounded path exists, the value
// is at most the sum of the finite capacities, which was checked.
func (r *residual) maximise(source, sink int32) (int64, error) {
	if r.reach(source, sink, Unlimited) {
		return 0, fmt.Errorf("%w: a path from source to sink has no capacity", ErrUnbounded)
	}
	var value int64
	for r.reach(source, sink, 1) {
		copy(r.next, r.first)
		for {
			sent := r.augment(source, sink)
			if sent == 0 {
				break
			}
			value += sent
		}
	}
	return value, nil
}

// reach finds the levels of the nodes by breadth-first search over half arcs
// with a residual of at least least, and reports whether the sink is reached.
func (r *residual) reach(source, sink int32, least int64) bool {
	for v := range r.level {
		r.level[v] = none
	}
	r.level[source] = 0
	r.queue = append(r.queue[:0], source)
	for k := 0; k < len(r.queue); k++ {
		v := r.queue[k]
		for _, h := range r.out[r.first[v]:r.first[v+1]] {
			if w := r.head[h]; r.level[w] == none && r.left[h] >= least {
				r.level[w] = r.level[v] + 1
				if w == sink {
					return true
				}
				r.queue = append(r.queue, w)
			}
		}
	}
	return false
}

// augment sends units along one shortest path and returns how many; 0 if the
// level graph has no path left.
func (r *residual) augment(source, sink int32) int64 {
	r.path = r.path[:0]
	for v := source; v != sink; {
		h := r.admissible(v)
		if h != none {
			r.path = append(r.path, h)
			v = r.head[h]
			continue
		}
		if v == source {
			return 0
		}
		last := len(r.path) - 1
		v = r.head[r.path[last]^1]
		r.path = r.path[:last]
		r.next[v]++
	}
	sent := Unlimited
	for _, h := range r.path {
		sent = min(sent, r.left[h])
	}
	for _, h := range r.path {
		r.left[h] = less(r.left[h], sent)
		r.left[h^1] = more(r.left[h^1], sent)
	}
	return sent
}

// admissible returns the next half arc of v that leads one level on, or none.
func (r *residual) admissible(v int32) int32 {
	for end := r.first[v+1]; r.next[v] < end; r.next[v]++ {
		h := r.out[r.next[v]]
		if r.left[h] > 0 && r.level[r.head[h]] == r.level[v]+1 {
			return h
		}
	}
	return none
}
