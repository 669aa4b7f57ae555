package policy

import (
	"math"

	"heartbed/heart"
)

// atpm is HEART's first stage: the share of a component's requests for each of
// its groups, in inverse proportion to the CPU time a request costs there.
type atpm struct {
	alpha         alphaRule
	off           bool // equal shares by replica
	entryEqual    bool // the same for callers that nobody calls
	byReplica     bool // share in proportion to n/E rather than 1/E
	coldByReplica bool
	limits        bool
	maxChange     float64
}

// trend is what is remembered of a group from one window to the next.
type trend struct {
	ewma          float64   // CPU seconds a request; 0 = no estimate yet
	loads         []float64 // the newest ones, oldest first
	bias, scatter float64   // smoothed error and absolute error of the EWMA
	share         float64
}

// prediction is the outcome for one component, a value a group.
type prediction struct {
	shares []float64
	memory []trend
	trace  []heart.GroupTrace
}

// CPU time a request, in seconds, that counts as measured: below a nanosecond
// it is under the resolution of any CPU accounting, above the other bound it
// is no load.
const (
	leastLoad = 1e-9
	mostLoad  = 1e9
)

// predict estimates the load of each group and derives the shares.
//
// A group with a load in this window moves its EWMA. One without keeps its
// EWMA; if it has none, it takes the mean of the groups measured in this
// window or, when there are none, of those that kept theirs.
func (a atpm) predict(c component, o heart.Observation, memory map[string]trend) prediction {
	p := prediction{
		shares: make([]float64, len(c.groups)),
		memory: make([]trend, len(c.groups)),
		trace:  make([]heart.GroupTrace, len(c.groups)),
	}
	scaled := a.limits && limitsDiffer(c, o.Topology.Replicas)
	var fresh, kept mean
	known := true
	for i, g := range c.groups {
		before, existed := memory[g.name]
		known = known && existed
		t := &p.trace[i]
		t.Node, t.Replicas = o.Topology.Nodes[g.node].Name, len(g.replicas)
		load, measured := g.load(o, scaled)
		if measured {
			t.Load = &load
		}
		p.memory[i] = before
		switch {
		case a.off:
		case measured:
			var weight float64
			p.memory[i], weight = a.alpha.update(before, load)
			t.Alpha = &weight
			fresh.add(p.memory[i].ewma)
		case before.ewma > 0:
			kept.add(before.ewma)
		}
		t.EWMA = p.memory[i].ewma
	}
	fill := fresh.value()
	if fresh.n == 0 {
		fill = kept.value()
	}
	for i := range p.trace {
		if p.trace[i].EWMA == 0 && !a.off {
			p.trace[i].EWMA = fill
		}
	}
	a.share(&p, a.off || a.entryEqual && c.calls && !c.called)
	if a.maxChange > 0 && known {
		a.cap(&p)
	}
	for i, s := range p.shares {
		p.trace[i].Share, p.memory[i].share = s, s
	}
	return p
}

// share sets the shares in proportion to n/E, or equal if no E is known.
// Callers that nobody calls get what comes from outside, which knows no E:
// equal shares by replica.
func (a atpm) share(p *prediction, equal bool) {
	sum := 0.0
	for i, t := range p.trace {
		cold := t.EWMA == 0
		weight := 1.0
		if equal || cold && a.coldByReplica || !cold && a.byReplica {
			weight = float64(t.Replicas)
		}
		if !equal && !cold {
			weight /= t.EWMA
		}
		p.shares[i] = weight
		sum += weight
	}
	for i := range p.shares {
		p.shares[i] /= sum
	}
}

// cap goes from the last shares towards the new ones as far as no share
// changes by more than allowed; the shares still add up to 1.
func (a atpm) cap(p *prediction) {
	largest := 0.0
	for i, s := range p.shares {
		largest = max(largest, math.Abs(s-p.memory[i].share))
	}
	if largest <= a.maxChange {
		return
	}
	for i, s := range p.shares {
		last := p.memory[i].share
		p.shares[i] = last + (s-last)*a.maxChange/largest
	}
}

// load is the CPU time a request of the group, in seconds (of CPU limits when
// scaled), over its replicas that had requests. It reports whether it was
// measured at all.
func (g group) load(o heart.Observation, scaled bool) (float64, bool) {
	cpu, requests := 0.0, 0.0
	for k, name := range g.replicas {
		s, observed := o.Replicas[name]
		if !observed || !(s.Requests > 0) || !(s.CPUSeconds >= 0) {
			continue
		}
		if scaled {
			s.CPUSeconds /= o.Topology.Replicas[g.index[k]].CPULimit
		}
		cpu += s.CPUSeconds
		requests += s.Requests
	}
	load := cpu / requests
	return load, leastLoad <= load && load <= mostLoad
}

// limitsDiffer tells whether all CPU limits of a component are known and some
// differ, so that CPU time must be compared relative to them.
func limitsDiffer(c component, replicas []heart.Replica) bool {
	differ := false
	for _, i := range c.index {
		if !(replicas[i].CPULimit > 0) {
			return false
		}
		differ = differ || replicas[i].CPULimit != replicas[c.index[0]].CPULimit
	}
	return differ
}

// mean of what was added, 0 of nothing.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) { m.sum, m.n = m.sum+x, m.n+1 }

func (m mean) value() float64 {
	if m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}
