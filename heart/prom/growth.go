package prom

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/prometheus/common/model"
)

// grown is what a counter grew by from the first to the last sample that was
// seen of it.
type grown struct {
	caller string
	cpu    bool
	amount float64
	seen   span
}

// apart is what each counter of a replica grew by, each over the time that it
// was seen. Series with one key that follow each other, as those of a container
// that was started again do, are one counter. A counter that was seen fewer
// than twice has not been observed.
func apart(counters []counter, w span) (all []grown) {
	points := map[string][]model.SamplePair{}
	of := map[string]counter{}
	for _, c := range counters {
		of[c.key] = c
		points[c.key] = append(points[c.key], usable(c.between(w))...)
	}
	for _, key := range slices.Sorted(maps.Keys(points)) {
		chain := points[key]
		if len(chain) < 2 {
			continue
		}
		slices.SortFunc(chain, func(a, b model.SamplePair) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
		g := grown{caller: of[key].caller, cpu: of[key].cpu, seen: span{chain[0].Timestamp, chain[len(chain)-1].Timestamp}}
		for i := 1; i < len(chain); i++ {
			before, now := float64(chain[i-1].Value), float64(chain[i].Value)
			if now < before { // started again from zero
				before = 0
			}
			g.amount += now - before
		}
		all = append(all, g)
	}
	return all
}

// reading is one scrape of a replica.
type reading struct {
	spoilt bool      // holds a value that no counter can have
	cpu    bool      // holds CPU time
	values []float64 // by counter; NaN = not shown
}

// together is what the counters of one process grew by, those of one caller
// added up. They are read at once,
// so that one that falls tells of a restart for all, and one that was not there
// at the reading before counts from zero. Where CPU time is among them, a
// reading without it is none.
func together(counters []counter, w span) []grown {
	readings, all := readingsOf(counters, w)
	withCPU := slices.ContainsFunc(all, func(g grown) bool { return g.cpu })
	var before *reading
	var seen span
	for _, at := range slices.Sorted(maps.Keys(readings)) {
		now := readings[at]
		if now.spoilt || withCPU && !now.cpu {
			continue
		}
		if before == nil {
			seen.first = at
		} else {
			now.growSince(before, all)
		}
		before, seen.last = now, at
	}
	if seen.first == seen.last { // never or once
		return nil
	}
	return byCaller(all, seen)
}

// byCaller adds up what was seen over the same time.
func byCaller(all []grown, seen span) (sums []grown) {
	for _, g := range all {
		i := slices.IndexFunc(sums, func(s grown) bool { return s.caller == g.caller && s.cpu == g.cpu })
		if i < 0 {
			g.seen = seen
			sums = append(sums, g)
		} else {
			sums[i].amount += g.amount
		}
	}
	return sums
}

// readingsOf arranges the samples of counters by scrape. The values are in the
// order of all, in which each counter has grown by nothing yet.
func readingsOf(counters []counter, w span) (readings map[model.Time]*reading, all []grown) {
	index := make(map[string]int, len(counters)) // of a key in all
	all = make([]grown, 0, len(counters))
	for _, c := range counters {
		if _, known := index[c.key]; !known {
			index[c.key] = len(all)
			all = append(all, grown{caller: c.caller, cpu: c.cpu})
		}
	}
	readings = map[model.Time]*reading{}
	for _, c := range counters {
		i := index[c.key]
		for _, p := range c.between(w) {
			r := readings[p.Timestamp]
			if r == nil {
				r = &reading{values: slices.Repeat([]float64{math.NaN()}, len(all))}
				readings[p.Timestamp] = r
			}
			r.values[i] = float64(p.Value)
			r.cpu = r.cpu || c.cpu
			r.spoilt = r.spoilt || !possible(p)
		}
	}
	return readings, all
}

// growSince adds what the counters grew by since the reading before.
func (r *reading) growSince(before *reading, all []grown) {
	restarted := false
	for i, value := range r.values {
		restarted = restarted || value < before.values[i]
	}
	for i, value := range r.values {
		if math.IsNaN(value) {
			continue
		}
		if last := before.values[i]; !restarted && !math.IsNaN(last) {
			value -= last
		}
		all[i].amount += value
	}
}
