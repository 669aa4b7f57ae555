package scaler

import "time"

// freshFor is how many flushes a pushed value counts for.
const freshFor = 4

// push is activescale: each pod's proxy sends its requests in flight once a
// flush, and the HPA reads the newest value of every pod. A pod that has
// flushed and has no request is a zero, one that is silent has no value.
type push struct {
	rule   ratio
	target float64
	flush  timetable
	at     time.Duration
	values map[int]sample
}

func newPush(c Config, rule ratio) *push {
	return &push{rule: rule, target: c.Target, flush: newTimetable(c.Seed, c.Every), values: map[int]sample{}}
}

func (p *push) next() time.Duration { return p.at }

func (p *push) collect(v View) {
	for _, pod := range p.flush.due(v) {
		if !pod.Pending {
			p.values[pod.ID] = sample{milli: 1000 * int64(pod.Active), at: v.Now}
		}
	}
	p.at = p.flush.soonest(v.Now)
}

func (p *push) propose(v View) (int, bool) {
	for id, s := range p.values {
		if s.at <= v.Now-freshFor*p.flush.every {
			delete(p.values, id)
		}
	}
	return p.rule.active(v, p.values, p.target)
}
