package sim

import "heartbed/testbed"

// antagonist is other work on one node that comes and goes.
type antagonist struct {
	testbed.Bursts
	node int
}

func newAntagonists(p testbed.Plan, at map[string]int) []antagonist {
	var out []antagonist
	for _, b := range p.Bursts() {
		out = append(out, antagonist{Bursts: b, node: at[b.Node]})
	}
	return out
}

// schedule plans the end of the present pause or burst.
func (a *antagonist) schedule(w *world, i int32) {
	w.events.push(w.now+int64(a.Length()), antagonise, i, 0)
}

// toggle starts or ends a burst.
func (a *antagonist) toggle(w *world, i int32) {
	n := w.nodes[a.node]
	for _, s := range n.stations {
		w.stations[s].settle(w.now)
	}
	a.Active = !a.Active
	if a.Active {
		n.inflate *= a.Inflate
		n.cores -= a.StealCores
	} else {
		n.inflate /= a.Inflate
		n.cores += a.StealCores
	}
	for _, s := range n.stations {
		w.changed(s)
	}
	a.schedule(w, i)
}
