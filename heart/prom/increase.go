package prom

import (
	"cmp"
	"math"
	"slices"

	"github.com/prometheus/common/model"
)

// counter is one time series of a replica.
type counter struct {
	*subject
	from   *origin
	points []model.SamplePair // oldest first
}

// subject is what a counter counts.
type subject struct {
	key    string // series with the same key are of one counter
	caller string // component that sent the requests; "" = not known
	cpu    bool   // CPU seconds; else requests
}

// origin is where a counter comes from.
type origin struct {
	labels labels // all but those that tell what is counted
	target string // equal for the series of one target
}

// span is a stretch of time from its first to its last sample.
type span struct{ first, last model.Time }

// between are the points of the counter within the span, its ends included.
func (c counter) between(w span) []model.SamplePair {
	from, _ := slices.BinarySearchFunc(c.points, w.first, byTime)
	to, _ := slices.BinarySearchFunc(c.points, w.last+1, byTime)
	return c.points[from:max(from, to)]
}

func byTime(p model.SamplePair, t model.Time) int { return cmp.Compare(p.Timestamp, t) }

// duplicate says in which labels two series of a replica differ that count the
// same thing at the same time, so that adding them up would count it twice:
// series with one key, or of two targets. "" = there are none.
func duplicate(counters []counter, w span) string {
	keys := make([]shown, 0, len(counters))
	var targets []shown
	index := map[string]int{} // of a target in targets
	for _, c := range counters {
		points := c.between(w)
		if len(points) == 0 {
			continue
		}
		s := shown{c.from, c.key, span{points[0].Timestamp, points[len(points)-1].Timestamp}}
		keys = append(keys, s)
		i, known := index[c.from.target]
		if !known {
			i = len(targets)
			index[c.from.target] = i
			targets = append(targets, shown{c.from, "", s.span})
		}
		seen := &targets[i].span
		seen.first, seen.last = min(seen.first, s.first), max(seen.last, s.last)
	}
	if a, b, found := overlap(targets); found {
		return differences(a.labels.only(isOfTarget), b.labels.only(isOfTarget))
	}
	if a, b, found := overlap(keys); found {
		return differences(a.labels, b.labels)
	}
	return ""
}

// shown is what may be shown by one series at a time, and when it was.
type shown struct {
	from *origin
	what string
	span
}

// overlap gives the origins of two that show the same at the same time.
func overlap(all []shown) (a, b *origin, found bool) {
	slices.SortFunc(all, func(a, b shown) int {
		return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.first, b.first), cmp.Compare(a.from.target, b.from.target))
	})
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.what == b.what && b.first <= a.last {
			return a.from, b.from, true
		}
	}
	return nil, nil, false
}

// isOfTarget says whether the label tells where a series was scraped and by
// whom, not what it counts.
func isOfTarget(name string) bool {
	switch name {
	case "job", "instance", "endpoint", "metrics_path", "prometheus", "prometheus_replica":
		return true
	}
	return false
}

// possible says whether a counter can have the value.
func possible(p model.SamplePair) bool {
	return p.Value >= 0 && !math.IsInf(float64(p.Value), 0)
}

// usable are the points that a counter can have.
func usable(points []model.SamplePair) []model.SamplePair {
	if i := slices.IndexFunc(points, func(p model.SamplePair) bool { return !possible(p) }); i < 0 {
		return points
	}
	return slices.DeleteFunc(slices.Clone(points), func(p model.SamplePair) bool { return !possible(p) })
}
