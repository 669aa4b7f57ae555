package prom

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// counter is one time series of a replica.
type counter struct {
	key    string // what it counts; series with the same key are of one counter
	caller string // component that sent the requests; "" = not known
	cpu    bool   // CPU seconds; else requests
	labels model.Metric
	points []model.SamplePair // oldest first
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

// grown is what a counter grew by from the first to the last sample that was
// seen of it.
type grown struct {
	caller string
	cpu    bool
	amount float64
	seen   span
}

// duplicate says in which labels two series of a replica differ that count the
// same thing at the same time, so that adding them up would count it twice:
// series with one key, or of two targets. "" = there are none.
func duplicate(counters []counter, w span) string {
	type shown struct {
		span
		labels model.Metric
	}
	byKey, byTarget := map[string][]shown{}, map[string]shown{}
	for _, c := range counters {
		points := c.between(w)
		if len(points) == 0 {
			continue
		}
		s := shown{span{points[0].Timestamp, points[len(points)-1].Timestamp}, c.labels}
		byKey[c.key] = append(byKey[c.key], s)
		name := targetName(c.labels)
		if t, known := byTarget[name]; known {
			s.span = span{min(s.first, t.first), max(s.last, t.last)}
		}
		byTarget[name] = s
	}
	lists := [][]shown{slices.Collect(maps.Values(byTarget))}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		lists = append(lists, byKey[key])
	}
	for n, list := range lists {
		slices.SortFunc(list, func(a, b shown) int {
			return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.labels.String(), b.labels.String()))
		})
		for i := 1; i < len(list); i++ {
			if list[i].first <= list[i-1].last {
				a, b := list[i-1].labels, list[i].labels
				if n == 0 {
					a, b = targetOf(a), targetOf(b)
				}
				return differences(a, b)
			}
		}
	}
	return ""
}

// targetLabels say where a series was scraped and by whom, not what it counts.
var targetLabels = []model.LabelName{"job", "instance", "endpoint", "metrics_path", "prometheus", "prometheus_replica"}

// targetOf are the labels that say where a series was scraped.
func targetOf(m model.Metric) model.Metric {
	target := model.Metric{}
	for _, name := range targetLabels {
		if value, there := m[name]; there {
			target[name] = value
		}
	}
	return target
}

// targetName tells targets apart.
func targetName(m model.Metric) string {
	var name strings.Builder
	for _, label := range targetLabels {
		name.WriteString(string(m[label]))
		name.WriteByte(0xff)
	}
	return name.String()
}

// differences names the labels in which two series differ.
func differences(a, b model.Metric) string {
	names := map[model.LabelName]bool{}
	for name := range a {
		names[name] = a[name] != b[name]
	}
	for name := range b {
		names[name] = a[name] != b[name]
	}
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] && name != model.MetricNameLabel {
			differ = append(differ, fmt.Sprintf("%s=%q and %q", name, min(a[name], b[name]), max(a[name], b[name])))
		}
	}
	return strings.Join(differ, ", ")
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
	spoilt bool // holds a value that no counter can have
	values map[int]float64
}

// together is what the counters of one process grew by. They are read at once,
// so that one that falls tells of a restart for all, and one that was not there
// at the reading before counts from zero. Where CPU time is among them, a
// reading without it is none.
func together(counters []counter, w span) (all []grown) {
	readings := map[model.Time]*reading{}
	index := map[string]int{} // of a key in all
	withCPU := false
	for _, c := range counters {
		i, known := index[c.key]
		if !known {
			i = len(all)
			index[c.key] = i
			all = append(all, grown{caller: c.caller, cpu: c.cpu})
		}
		withCPU = withCPU || c.cpu
		for _, p := range c.between(w) {
			r := readings[p.Timestamp]
			if r == nil {
				r = &reading{values: map[int]float64{}}
				readings[p.Timestamp] = r
			}
			r.values[i] = float64(p.Value)
			r.spoilt = r.spoilt || !possible(p)
		}
	}
	var before *reading
	var seen span
	for _, at := range slices.Sorted(maps.Keys(readings)) {
		now := readings[at]
		if now.spoilt || withCPU && !now.has(all) {
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
	for i := range all {
		all[i].seen = seen
	}
	return all
}

// has says whether the reading holds CPU time.
func (r *reading) has(all []grown) bool {
	for i := range r.values {
		if all[i].cpu {
			return true
		}
	}
	return false
}

// growSince adds what the counters grew by since the reading before.
func (r *reading) growSince(before *reading, all []grown) {
	restarted := false
	for i, value := range r.values {
		restarted = restarted || value < before.values[i]
	}
	for i, value := range r.values {
		if !restarted {
			value -= before.values[i]
		}
		all[i].amount += value
	}
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
