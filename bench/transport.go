package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"

	"heartbed/heart/flow"
)

// transport is a dense transport problem: every source may send to every sink.
type transport struct {
	supply, demand []int64 // of equal sums
	cost           []int64 // source by source
}

const (
	totalUnits = 1_000_000
	minCost    = 50
	maxCost    = 20_050
)

// newTransport draws a square problem: costs are uniform in minCost..maxCost,
// supplies differ by up to a factor of three, demands follow Zipf's law.
func newTransport(size int, seed uint64) transport {
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	supply, demand := make([]float64, size), make([]float64, size)
	for i := range size {
		supply[i] = 0.5 + rng.Float64()
		demand[i] = 1 / float64(i+1)
	}
	rng.Shuffle(size, func(i, j int) { demand[i], demand[j] = demand[j], demand[i] })
	p := transport{supply: portions(totalUnits, supply), demand: portions(totalUnits, demand), cost: make([]int64, size*size)}
	for e := range p.cost {
		p.cost[e] = minCost + rng.Int64N(maxCost-minCost+1)
	}
	return p
}

// portions splits total in proportion to the weights; the last takes the rest.
func portions(total int64, weights []float64) []int64 {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	parts, left := make([]int64, len(weights)), total
	for i, w := range weights {
		parts[i] = int64(float64(total) * w / sum)
		left -= parts[i]
	}
	parts[len(parts)-1] += left
	return parts
}

// network builds the problem for heart/flow: sources first, then sinks.
func (p transport) network() *flow.Network {
	n := flow.New(len(p.supply)+len(p.demand), len(p.cost))
	for _, s := range p.supply {
		n.AddNode(s)
	}
	for _, d := range p.demand {
		n.AddNode(-d)
	}
	for e, c := range p.cost {
		n.AddArc(e/len(p.demand), len(p.supply)+e%len(p.demand), flow.Unlimited, c)
	}
	return n
}

// writeDIMACS writes the problem in the DIMACS format of minimum cost flow
// problems, with -1 for the capacity of an arc that has none.
func (p transport) writeDIMACS(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "p min %d %d\n", len(p.supply)+len(p.demand), len(p.cost))
	for i, s := range p.supply {
		fmt.Fprintf(b, "n %d %d\n", i+1, s)
	}
	for j, d := range p.demand {
		fmt.Fprintf(b, "n %d %d\n", len(p.supply)+j+1, -d)
	}
	for e, c := range p.cost {
		fmt.Fprintf(b, "a %d %d 0 -1 %d\n", e/len(p.demand)+1, len(p.supply)+e%len(p.demand)+1, c)
	}
	return b.Flush()
}

// drift changes every cost and every supply and demand by up to one percent,
// as a control period later, and keeps the sums equal.
func (p transport) drift(rng *rand.Rand) transport {
	move := func(x int64) int64 { return x + int64(float64(x)*(rng.Float64()*0.02-0.01)) }
	weights := func(units []int64) []float64 {
		w := make([]float64, len(units))
		for i, u := range units {
			w[i] = float64(move(u))
		}
		return w
	}
	next := transport{supply: portions(totalUnits, weights(p.supply)), demand: portions(totalUnits, weights(p.demand)),
		cost: make([]int64, len(p.cost))}
	for e, c := range p.cost {
		next.cost[e] = move(c)
	}
	return next
}

// apply sets the numbers of the problem on a network built for one of its size.
func (p transport) apply(n *flow.Network) {
	for i, s := range p.supply {
		n.SetSupply(i, s)
	}
	for j, d := range p.demand {
		n.SetSupply(len(p.supply)+j, -d)
	}
	for e, c := range p.cost {
		n.SetCost(e, c)
	}
}
