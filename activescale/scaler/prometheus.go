package scaler

import (
	"math"
	"time"
)

// prometheus is KEDA over Prometheus: each pod's proxy is scraped at a moment
// of its own, and the sum of the newest values is one external metric. KEDA
// takes an empty answer for zero (ignoreNullValues). By default the HPA's
// question goes through to Prometheus; with a cache it gets the answer of the
// last poll.
type prometheus struct {
	rule     ratio
	target   int64 // thousandths
	scrape   timetable
	scrapeAt time.Duration
	values   map[int]int
	poll     time.Duration // 0 = no cache
	pollAt   time.Duration
	cached   int64 // thousandths
	polled   bool
}

func newPrometheus(c Config, rule ratio) *prometheus {
	p := &prometheus{
		rule: rule, target: int64(math.Round(1000 * c.Target)), poll: c.Poll,
		scrape: newTimetable(c.Seed, c.Every), values: map[int]int{},
	}
	if c.Poll > 0 {
		p.pollAt = phase(c.Seed, pollStream, c.Poll)
	}
	return p
}

func (p *prometheus) next() time.Duration {
	if p.poll > 0 {
		return min(p.scrapeAt, p.pollAt)
	}
	return p.scrapeAt
}

func (p *prometheus) collect(v View) {
	if p.scrapeAt <= v.Now {
		for _, pod := range p.scrape.due(v) {
			if !pod.Pending {
				p.values[pod.ID] = pod.Active
			}
		}
		// A target that is gone is marked stale when its next scrape would be;
		// the timetable has just forgotten it.
		for id := range p.values {
			if _, here := p.scrape.next[id]; !here {
				delete(p.values, id)
			}
		}
		p.scrapeAt = p.scrape.soonest(v.Now)
	}
	if p.poll > 0 && p.pollAt <= v.Now {
		p.cached, p.polled = p.sum(), true
		p.pollAt += p.poll
	}
}

// sum is the query's answer, thousandths.
func (p *prometheus) sum() int64 {
	sum := 0
	for _, active := range p.values {
		sum += active
	}
	return 1000 * int64(sum)
}

func (p *prometheus) propose(v View) (int, bool) {
	total := p.sum()
	if p.poll > 0 {
		if !p.polled {
			return 0, false
		}
		total = p.cached
	}
	return p.rule.external(v.Replicas, total, p.target), true
}
