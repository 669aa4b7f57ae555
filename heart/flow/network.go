package flow

import (
	"errors"
	"fmt"
	"math"
)

// Unlimited is the capacity of an arc without a bound.
const Unlimited int64 = math.MaxInt64

// What Solve, MaxFlow and Routable can fail with; test with errors.Is.
var (
	// ErrInfeasible says that no flow satisfies all supplies.
	ErrInfeasible = errors.New("flow: infeasible")
	// ErrUnbounded says that the optimum is infinite: a cycle of negative cost
	// (or, for a maximum flow, a path) on which no arc has a capacity.
	ErrUnbounded = errors.New("flow: unbounded")
	// ErrOverflow says that the numbers are too large for exact int64 arithmetic.
	ErrOverflow = errors.New("flow: numbers too large")
	// ErrInvalid says that the network itself is wrong: supplies that do not
	// add up to zero, a negative capacity, an arc to a node that is not there.
	ErrInvalid = errors.New("flow: invalid network")
)

// Network is a directed graph with supplies, capacities and costs. Several arcs
// between the same nodes and arcs from a node to itself are allowed. The zero
// value is an empty network.
//
// Nodes and arcs are only ever added; to take an arc out, set its capacity to
// zero. That keeps indices stable and lets a Solver start from its last basis.
// A Network must not be changed while it is being solved.
type Network struct {
	supply   []int64
	from, to []int32
	cap      []int64
	cost     []int64
	faults   []error // arcs that could not be added as asked
}

// New returns an empty network with room for the given numbers of nodes and
// arcs. They are hints: it may grow beyond them.
func New(nodes, arcs int) *Network {
	nodes, arcs = max(nodes, 0), max(arcs, 0)
	return &Network{
		supply: make([]int64, 0, nodes),
		from:   make([]int32, 0, arcs),
		to:     make([]int32, 0, arcs),
		cap:    make([]int64, 0, arcs),
		cost:   make([]int64, 0, arcs),
	}
}

// AddNode adds a node and returns its index, counted from 0. A positive supply
// is what the node sends out, a negative one is what it takes in.
func (n *Network) AddNode(supply int64) int {
	n.supply = append(n.supply, supply)
	return len(n.supply) - 1
}

// AddArc adds an arc and returns its index, counted from 0. cap is at least 0
// and may be Unlimited; cost is per unit of flow and may be negative. An arc
// between nodes that do not exist is kept as a fault, which Solve reports.
func (n *Network) AddArc(from, to int, cap, cost int64) int {
	arc := len(n.from)
	if !n.hasNode(from) || !n.hasNode(to) {
		n.faults = append(n.faults, fmt.Errorf("%w: arc %d goes from node %d to node %d, there are %d nodes",
			ErrInvalid, arc, from, to, len(n.supply)))
		from, to = 0, 0
	}
	n.from = append(n.from, int32(from))
	n.to = append(n.to, int32(to))
	n.cap = append(n.cap, cap)
	n.cost = append(n.cost, cost)
	return arc
}

func (n *Network) hasNode(v int) bool {
	return v >= 0 && v < len(n.supply) && v <= math.MaxInt32
}

// Nodes returns the number of nodes.
func (n *Network) Nodes() int { return len(n.supply) }

// Arcs returns the number of arcs.
func (n *Network) Arcs() int { return len(n.from) }

// SetSupply changes the supply of an existing node.
func (n *Network) SetSupply(node int, supply int64) { n.supply[node] = supply }

// SetCap changes the capacity of an existing arc.
func (n *Network) SetCap(arc int, cap int64) { n.cap[arc] = cap }

// SetCost changes the cost of an existing arc.
func (n *Network) SetCost(arc int, cost int64) { n.cost[arc] = cost }

// limits are the magnitudes that bound all intermediate results of a solve.
type limits struct {
	supply  int64 // sum of the positive supplies
	maxCost int64 // largest absolute cost
}

// most bounds the supplies, the finite capacities and the potentials. A tree
// flow never exceeds supplies plus finite capacities, a potential never exceeds
// twice the nodes times the largest cost; with an eighth of the range for each,
// no sum or difference of a few of them can wrap.
const most int64 = math.MaxInt64 / 8

// check finds all faults of a minimum cost flow problem, and its limits.
func (n *Network) check() (limits, error) {
	lim, errs := n.checkUnits()
	for e, c := range n.cost {
		if c < -most || c > most {
			errs = append(errs, fmt.Errorf("%w: cost %d of arc %d, at most %d is possible", ErrOverflow, c, e, most))
			continue
		}
		lim.maxCost = max(lim.maxCost, c, -c)
	}
	if lim.maxCost > most/int64(len(n.supply)+1) {
		errs = append(errs, fmt.Errorf("%w: cost %d on paths of up to %d nodes, at most %d in all is possible",
			ErrOverflow, lim.maxCost, len(n.supply), most))
	}
	return lim, errors.Join(errs...)
}

// checkUnits checks what counts units: graph, capacities and supplies.
func (n *Network) checkUnits() (limits, []error) {
	caps, errs := n.checkCaps()
	var out, in int64
	for v, s := range n.supply {
		if s > most-caps-out || -s > most-caps-in || s == math.MinInt64 {
			errs = append(errs, fmt.Errorf("%w: supplies up to node %d and finite capacities exceed %d", ErrOverflow, v, most))
			return limits{}, errs
		}
		out += max(s, 0)
		in += max(-s, 0)
	}
	if out != in {
		errs = append(errs, fmt.Errorf("%w: supplies add up to %d (%d sent, %d taken), want 0", ErrInvalid, out-in, out, in))
	}
	return limits{supply: out}, errs
}

// checkCaps checks the graph and returns the sum of the finite capacities.
func (n *Network) checkCaps() (sum int64, errs []error) {
	errs = append(errs, n.faults...)
	if len(n.supply) > math.MaxInt32-2 || len(n.from)+len(n.supply) > math.MaxInt32/2 {
		errs = append(errs, fmt.Errorf("%w: %d nodes and %d arcs, at most 2^30 together are possible",
			ErrOverflow, len(n.supply), len(n.from)))
	}
	for e, c := range n.cap {
		switch {
		case c == Unlimited:
		case c < 0:
			errs = append(errs, fmt.Errorf("%w: capacity %d of arc %d is negative", ErrInvalid, c, e))
		case c > most-sum:
			errs = append(errs, fmt.Errorf("%w: finite capacities up to arc %d exceed %d (use Unlimited where no bound is meant)",
				ErrOverflow, e, most))
			return sum, errs
		default:
			sum += c
		}
	}
	return sum, errs
}
