package sim

import (
	"math/rand/v2"

	"heartbed/testbed"
	"heartbed/workloads"
)

// antagonist is other work on one node that comes and goes.
type antagonist struct {
	spec  testbed.Antagonist
	node  int
	rng   *rand.Rand
	burst bool
}

// newAntagonists gives every node of every antagonist a source of its own.
func newAntagonists(p testbed.Plan, at map[string]int) []antagonist {
	var out []antagonist
	for _, spec := range p.Antagonists {
		if spec.Inflate == 0 {
			spec.Inflate = 1
		}
		for _, name := range spec.Nodes {
			stream := antagonistStream + uint64(len(out))
			out = append(out, antagonist{spec: spec, node: at[name], rng: rand.New(rand.NewPCG(p.Seed, stream))})
		}
	}
	return out
}

// schedule plans the end of the present pause or burst.
func (a *antagonist) schedule(w *world, i int32) {
	from, to := a.spec.PauseMin, a.spec.PauseMax
	if a.burst {
		from, to = a.spec.BurstMin, a.spec.BurstMax
	}
	w.events.push(w.now+a.between(from, to), antagonise, i, 0)
}

func (a *antagonist) between(from, to workloads.Duration) int64 {
	return int64(from) + int64(a.rng.Float64()*float64(to-from))
}

// toggle starts or ends a burst.
func (a *antagonist) toggle(w *world, i int32) {
	n := w.nodes[a.node]
	for _, s := range n.stations {
		w.stations[s].settle(w.now)
	}
	a.burst = !a.burst
	if a.burst {
		n.inflate *= a.spec.Inflate
		n.cores -= a.spec.StealCores
	} else {
		n.inflate /= a.spec.Inflate
		n.cores += a.spec.StealCores
	}
	for _, s := range n.stations {
		w.changed(s)
	}
	a.schedule(w, i)
}
