package testbed

import (
	"math/rand/v2"
	"time"

	"heartbed/workloads"
)

// burstStream is the stream of random numbers of a plan's first schedule of
// bursts; the simulator's own purposes have those before it.
const burstStream uint64 = 5

// Bursts is when an antagonist is at work on one of its nodes: pauses and
// bursts by turns, a pause first. The length of each is uniform in its range
// and drawn when it begins.
type Bursts struct {
	Antagonist
	Node   string
	Active bool // now in a burst; its user flips it
	rng    *rand.Rand
}

// Bursts makes the schedules of all antagonists, one for each of their nodes,
// each with a stream of its own. They are the same for all backends. Inflate
// is 1 where the plan leaves it out.
func (p Plan) Bursts() []Bursts {
	var all []Bursts
	for _, a := range p.Antagonists {
		if a.Inflate == 0 {
			a.Inflate = 1
		}
		for _, node := range a.Nodes {
			source := rand.NewPCG(p.Seed, burstStream+uint64(len(all)))
			all = append(all, Bursts{Antagonist: a, Node: node, rng: rand.New(source)})
		}
	}
	return all
}

// Length draws how long the burst, or the pause, that begins now will last.
func (b *Bursts) Length() time.Duration {
	if b.Active {
		return b.between(b.BurstMin, b.BurstMax)
	}
	return b.between(b.PauseMin, b.PauseMax)
}

func (b *Bursts) between(from, to workloads.Duration) time.Duration {
	return from.Std() + time.Duration(b.rng.Float64()*float64(to-from))
}
