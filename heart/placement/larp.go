package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"heartbed/heart"
)

// Near says what LARP measures nearness to.
type Near int

const (
	// NearFirst is the node of the first group, as in the authors' code.
	NearFirst Near = iota
	// NearAll is all the nodes chosen before, as the paper words it: the sum
	// of the round-trip times to them.
	NearAll
)

// far stands in for a round-trip time nobody has measured: longer than any.
const far = 24 * time.Hour

// bundle is replicas of several services that LARP keeps together on a node.
type bundle struct {
	members     []member
	cpu, memory float64
}

type member struct{ service, index int }

// LARP places so that replicas that call each other share nodes or are near
// (ICSOC 2024). It deals the replicas of each service in turn into as many
// bundles as a service has replicas on average. Every node is tried for the
// largest bundle, the others follow from large to small, each on the unused
// node with room that is nearest; the start with the least sum of round-trip
// times wins, the first of equal ones. When no unused node has room, the used
// one with the most free CPU takes the bundle. The rule is greedy: the best
// placement may be another.
func LARP(in Input, near Near) ([]heart.Replica, error) {
	if err := in.validate(); err != nil {
		return nil, err
	}
	bundles := in.bundles()
	var best []int
	var least time.Duration
	stuck := -1 // bundle at which the start that came farthest gave up
	for start := range in.Nodes {
		at, total := in.placeFrom(start, bundles, near)
		if len(at) < len(bundles) {
			stuck = max(stuck, len(at))
		} else if best == nil || total < least {
			best, least = at, total
		}
	}
	if best == nil {
		b := bundles[stuck]
		return nil, fmt.Errorf("group %d of %d (%s: %s) fits on no node, whatever the first node is",
			stuck+1, len(bundles), in.names(b), needs(b.cpu, b.memory))
	}
	node := map[member]string{}
	for k, b := range bundles {
		for _, m := range b.members {
			node[m] = in.Nodes[best[k]].Name
		}
	}
	var replicas []heart.Replica
	for s, service := range in.Services {
		for i := range service.Replicas {
			replicas = append(replicas, heart.Replica{Name: service.replica(i), Component: service.Name, Node: node[member{s, i}]})
		}
	}
	return replicas, nil
}

// bundles deals the replicas and sorts the bundles by CPU, then memory, from
// large to small.
func (in Input) bundles() []bundle {
	replicas := 0
	for _, s := range in.Services {
		replicas += s.Replicas
	}
	bundles := make([]bundle, max(1, replicas/max(1, len(in.Services))))
	for s, service := range in.Services {
		for i := range service.Replicas {
			b := &bundles[i%len(bundles)]
			b.members = append(b.members, member{s, i})
			b.cpu += service.CPU
			b.memory += service.MemoryMB
		}
	}
	slices.SortStableFunc(bundles, func(a, b bundle) int {
		return cmp.Or(cmp.Compare(b.cpu, a.cpu), cmp.Compare(b.memory, a.memory))
	})
	return bundles
}

// placeFrom returns the node of each bundle when the first goes on start, as
// far as it comes, and the sum of the round-trip times.
func (in Input) placeFrom(start int, bundles []bundle, near Near) (at []int, total time.Duration) {
	room := newRoom(in.Nodes)
	used := make([]bool, len(in.Nodes))
	for k, b := range bundles {
		node := start
		if k > 0 {
			node = in.nearest(b, at, used, room, near)
		}
		if node < 0 || !room.fits(node, b.cpu, b.memory) {
			return at, total
		}
		if k > 0 {
			total += in.distance(at, node, near)
		}
		room.take(node, b.cpu, b.memory)
		used[node] = true
		at = append(at, node)
	}
	return at, total
}

// nearest picks the unused node with room that is nearest to those chosen, or
// else the used one with the most free CPU; -1 if none has room.
func (in Input) nearest(b bundle, chosen []int, used []bool, room room, near Near) int {
	node, reuse := -1, -1
	for n := range in.Nodes {
		switch {
		case !room.fits(n, b.cpu, b.memory):
		case used[n]:
			if reuse < 0 || room.cores[n] > room.cores[reuse] {
				reuse = n
			}
		case node < 0 || in.distance(chosen, n, near) < in.distance(chosen, node, near):
			node = n
		}
	}
	if node < 0 {
		return reuse
	}
	return node
}

func (in Input) distance(chosen []int, node int, near Near) time.Duration {
	if near == NearFirst {
		chosen = chosen[:1]
	}
	var sum time.Duration
	for _, from := range chosen {
		rtt := in.RTT[from][node]
		if rtt == heart.Unmeasured {
			rtt = far
		}
		sum += rtt
	}
	return sum
}

func (in Input) names(b bundle) string {
	var names []string
	for _, m := range b.members {
		names = append(names, in.Services[m.service].replica(m.index))
	}
	return strings.Join(names, " ")
}
