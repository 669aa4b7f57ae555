package policy

import (
	"errors"
	"fmt"

	"heartbed/heart"
)

// HEART (CLOUD 2025) decides in two stages. ATPM (atpm.go) predicts from CPU
// time a request how much of a component's traffic each node's group should
// get. NTAM (filter.go, transport.go) then picks the links: it drops the slow
// ones as far as the rest can carry all traffic, and minimises the network
// delay over what is left.
//
// The paper leaves points open; each is a parameter whose default is the
// reading that docs/method.md argues for.
var _ = register(Spec{
	Name:    "heart",
	Summary: "HEART: shares by CPU time a request, slow links filtered, least network delay",
	Params: []Param{
		{"trend", "on", "load trend: on, off (equal shares by replica), last (only the newest window, as alpha=last)"},
		{"alpha", "cv", "weight of the newest load: cv (by coefficient of variation), trigg-leach, fixed, last (1)"},
		{"alpha-min", "0.2", "least weight of the newest load"},
		{"alpha-max", "0.8", "largest weight of the newest load"},
		{"alpha-fixed", "0.5", "weight under alpha=fixed"},
		{"alpha-direction", "up", "what a volatile load does to the weight under alpha=cv: up or down"},
		{"window", "5", "loads the coefficient of variation is taken over, the newest included"},
		{"cv-ref", "0.25", "coefficient of variation at which the weight reaches its limit"},
		{"phi", "0.2", "smoothing of the errors under alpha=trigg-leach"},
		{"shares", "replicas", "share of a group: replicas (their number divided by the load) or groups (one divided by the load)"},
		{"cold", "groups", "while no load is known, equal shares by groups or by replicas"},
		{"limits", "on", "divide CPU time by the CPU limit where a component's limits differ"},
		{"max-change", "0", "largest change of a share in one cycle; 0 = no cap"},
		{"entry", "equal", "what callers that nobody calls receive: equal (by replica) or atpm"},
		{"filter", "on", "filter slow links: on or off"},
		{"few", "0.5", "fraction of the links up to which the slow ones are few and all removed at once"},
		{"many", "stop", "when slow links are many, at the first that is needed: stop, or skip it and go on"},
		{"min-gap", "0", "ms between the fast and the slow links below which nothing is filtered"},
		{"units", "10000", "parts a component's traffic is divided into; raised to 100 a group where there are more than 100"},
		{"trace-links", "10000", "links listed in the trace of a call, at most"},
	},
	New: newHeart,
})

type heartPolicy struct {
	atpm   atpm
	filter linkFilter

	units      int64
	traceLinks int

	memory map[string]trend // by group name
}

func newHeart(v Values) (heart.Policy, error) {
	h := &heartPolicy{
		atpm: atpm{
			alpha: alphaRule{
				kind: v.OneOf("alpha", "cv", "trigg-leach", "fixed", "last"),
				min:  v.Float("alpha-min", 0, 1), max: v.Float("alpha-max", 0, 1),
				fixed: v.Float("alpha-fixed", 0, 1), down: v.OneOf("alpha-direction", "up", "down") == "down",
				window: v.Int("window", 1, 1000), cvRef: v.Float("cv-ref", 1e-6, 1e6), phi: v.Float("phi", 0, 1),
			},
			byReplica:     v.OneOf("shares", "replicas", "groups") == "replicas",
			coldByReplica: v.OneOf("cold", "groups", "replicas") == "replicas",
			limits:        v.On("limits"),
			entryEqual:    v.OneOf("entry", "equal", "atpm") == "equal",
			maxChange:     v.Float("max-change", 0, 1),
		},
		filter: linkFilter{
			on: v.On("filter"), few: v.Float("few", 0, 1),
			skip: v.OneOf("many", "stop", "skip") == "skip", minGapUs: v.Float("min-gap", 0, 1e9) * 1000,
		},
		units:      int64(v.Int("units", 1, 1_000_000)),
		traceLinks: v.Int("trace-links", 0, 100_000_000),
	}
	switch v.OneOf("trend", "on", "off", "last") {
	case "off":
		h.atpm.off = true
	case "last":
		h.atpm.alpha.kind = "last"
	}
	if h.atpm.alpha.min > h.atpm.alpha.max {
		return nil, fmt.Errorf("parameter alpha-min is %g, more than alpha-max %g", h.atpm.alpha.min, h.atpm.alpha.max)
	}
	return h, nil
}

// Allocate runs both stages, the components and then the calls in parallel.
// What a group remembers is kept as long as the group exists in every
// observation; one that is gone for a window starts anew.
func (h *heartPolicy) Allocate(o heart.Observation, m *heart.Meter) (heart.Decision, error) {
	l, err := newLayout(o.Topology)
	if err != nil {
		return heart.Decision{}, err
	}
	predictions := h.predict(l, o)
	m.Lap("predict")

	delay := newDelays(o.Topology)
	problems := h.problems(l, predictions, delay)
	rank(problems)
	links := 0
	for _, p := range problems {
		links += p.links()
	}
	each(len(problems), links, func(k int) { h.filter.apply(problems[k]) })
	m.Lap("filter")

	errs := make([]error, len(problems))
	each(len(problems), links, func(k int) { errs[k] = problems[k].solve() })
	if err := errors.Join(errs...); err != nil {
		return heart.Decision{}, err
	}
	d := h.decide(l, predictions, problems)
	d.Warnings = append(delay.warnings(), d.Warnings...)
	h.remember(l, predictions)
	m.Lap("flow")
	return d, nil
}

func (h *heartPolicy) predict(l layout, o heart.Observation) []prediction {
	predictions := make([]prediction, len(l.components))
	each(len(l.components), len(o.Topology.Replicas), func(c int) {
		predictions[c] = h.atpm.predict(l.components[c], o, h.memory)
	})
	return predictions
}

// problems makes the transport problem of each call: the callers' shares are
// the supplies, the callees' shares the demands, in whole units.
func (h *heartPolicy) problems(l layout, predictions []prediction, delay delays) []*transport {
	total := h.units
	for _, c := range l.components {
		// So that rounding never moves a share by more than about 1 %.
		total = max(total, 100*int64(len(c.groups)))
	}
	units := make([][]int64, len(l.components))
	for c := range l.components {
		units[c] = apportionAll(predictions[c].shares, total)
	}
	problems := make([]*transport, len(l.calls))
	for k, c := range l.calls {
		from, to := l.components[c.from], l.components[c.to]
		problems[k] = &transport{
			from: from, to: to, supply: units[c.from], demand: units[c.to], delay: delay, traceLinks: h.traceLinks,
		}
	}
	return problems
}

func (h *heartPolicy) decide(l layout, predictions []prediction, problems []*transport) heart.Decision {
	d := heart.Decision{Table: heart.RoutingTable{Groups: l.byNode()}}
	for c, p := range predictions {
		d.Stages.ATPM = append(d.Stages.ATPM, heart.ComponentTrace{Component: l.components[c].name, Groups: p.trace})
	}
	for _, p := range problems {
		d.Table.Routes = append(d.Table.Routes, p.routes()...)
		d.Stages.NTAM = append(d.Stages.NTAM, p.trace())
		if left := p.filtered - len(p.high); left > 0 {
			d.Warnings = append(d.Warnings, fmt.Sprintf("call %s to %s: %d filtered links are left out of the trace, see trace-links",
				p.from.name, p.to.name, left))
		}
	}
	return d
}

func (h *heartPolicy) remember(l layout, predictions []prediction) {
	h.memory = make(map[string]trend, len(h.memory))
	for c, p := range predictions {
		for g, memory := range p.memory {
			h.memory[l.components[c].groups[g].name] = memory
		}
	}
}
