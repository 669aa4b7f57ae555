package flow

import (
	"fmt"
	"math/bits"
)

// Solution is an optimal flow and the proof that it is one.
type Solution struct {
	// Flow holds the units on each arc.
	Flow []int64
	// Potential holds the dual value of each node, relative to node 0: no
	// residual arc (i, j) has cost + Potential[i] - Potential[j] < 0.
	Potential []int64
	// Cost is the sum of cost times flow over the arcs.
	Cost int64
}

// Verify returns nil if s is an optimal solution of n, and otherwise an error
// that names the first arc or node at fault. It checks bounds, conservation,
// complementary slackness and the stated cost in O(nodes + arcs), and takes
// any numbers without wrapping.
func Verify(n *Network, s *Solution) error {
	if s == nil || len(s.Flow) != len(n.from) || len(s.Potential) != len(n.supply) {
		return fmt.Errorf("flow: solution does not fit a network of %d nodes and %d arcs", len(n.supply), len(n.from))
	}
	if _, err := n.check(); err != nil {
		return err
	}
	if err := verifyUnits(n, s.Flow); err != nil {
		return err
	}
	for e, f := range s.Flow {
		switch sign := reducedSign(n, s, e); {
		case sign > 0 && f > 0:
			return fmt.Errorf("flow: arc %d carries %d at positive reduced cost: taking units off would be cheaper", e, f)
		case sign < 0 && f < n.cap[e]:
			return fmt.Errorf("flow: arc %d carries %d of %d at negative reduced cost: adding units would be cheaper", e, f, n.cap[e])
		}
	}
	cost, err := totalCost(n.cost, s.Flow)
	if err != nil {
		return err
	}
	if cost != s.Cost {
		return fmt.Errorf("flow: the arcs cost %d, the solution says %d", cost, s.Cost)
	}
	return nil
}

// verifyUnits checks that a flow respects all capacities and supplies.
func verifyUnits(n *Network, flow []int64) error {
	left := make([]int128, len(n.supply))
	for v, s := range n.supply {
		left[v] = left[v].plus(s)
	}
	for e, f := range flow {
		if f < 0 || f > n.cap[e] {
			return fmt.Errorf("flow: arc %d carries %d, outside 0..%d", e, f, n.cap[e])
		}
		left[n.from[e]] = left[n.from[e]].plus(-f)
		left[n.to[e]] = left[n.to[e]].plus(f)
	}
	for v, l := range left {
		if l != (int128{}) {
			return fmt.Errorf("flow: node %d with supply %d is out of balance", v, n.supply[v])
		}
	}
	return nil
}

// reducedSign returns the sign of cost + potential(from) - potential(to).
func reducedSign(n *Network, s *Solution, e int) int {
	from, to := s.Potential[n.from[e]], s.Potential[n.to[e]]
	r := int128{}.plus(n.cost[e]).plus(from).minus(to)
	switch {
	case r.hi < 0:
		return -1
	case r == int128{}:
		return 0
	}
	return 1
}

// totalCost returns the sum of cost times flow, summed exactly.
func totalCost(cost, flow []int64) (int64, error) {
	var sum int128
	for e, f := range flow {
		if f != 0 {
			sum = sum.plusProduct(cost[e], f)
		}
	}
	if sum.hi != int64(sum.lo)>>63 {
		return 0, fmt.Errorf("%w: the total cost exceeds an int64", ErrOverflow)
	}
	return int64(sum.lo), nil
}

// int128 is a two's complement integer of 128 bits. Sums of 2^31 products of
// int64 values that passed check fit.
type int128 struct {
	hi int64
	lo uint64
}

func (a int128) add(b int128) int128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(uint64(a.hi), uint64(b.hi), carry)
	return int128{int64(hi), lo}
}

func (a int128) plus(x int64) int128 { return a.add(int128{x >> 63, uint64(x)}) }

func (a int128) minus(x int64) int128 {
	lo, borrow := bits.Sub64(a.lo, uint64(x), 0)
	hi, _ := bits.Sub64(uint64(a.hi), uint64(x>>63), borrow)
	return int128{int64(hi), lo}
}

// plusProduct adds x times y. The unsigned product counts a negative factor as
// 2^64 too large, which is taken off the high word.
func (a int128) plusProduct(x, y int64) int128 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	hi -= uint64(x>>63&y) + uint64(y>>63&x)
	return a.add(int128{int64(hi), lo})
}
