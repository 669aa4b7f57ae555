package prom

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// points are samples of a counter a second apart.
func points(values ...float64) []model.SamplePair {
	var all []model.SamplePair
	for i, v := range values {
		all = append(all, model.SamplePair{Timestamp: model.Time(1000 * i), Value: model.SampleValue(v)})
	}
	return all
}

var always = span{0, 1_000_000}

func TestBetween(t *testing.T) {
	c := counter{points: points(0, 1, 2, 3, 4)}
	require.Equal(t, c.points[1:4], c.between(span{1000, 3000}), "both ends belong to it")
	require.Equal(t, c.points[1:3], c.between(span{1, 2999}))
	require.Empty(t, c.between(span{5000, 9000}))
	require.Empty(t, c.between(span{3000, 2000}))
}

// Whatever a process does and whenever it starts again, what is counted is what
// happened between its readings, but for what it did between its last reading
// and its end.
func TestTogetherCountsWhatHappened(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		callers := rapid.IntRange(1, 4).Draw(t, "callers")
		cpu := counter{subject: &subject{key: "cpu", cpu: true}}
		requests := make([]counter, callers)
		value, want := make([]float64, callers), make([]float64, callers)
		used, wantCPU := 0.0, 0.0
		n := rapid.IntRange(2, 12).Draw(t, "scrapes")
		for i := range n {
			at := model.Time(1000 * i)
			restarted := i > 0 && rapid.IntRange(0, 4).Draw(t, "restart") == 0
			step := rapid.Float64Range(0.1, 1).Draw(t, "cpu")
			if restarted {
				clear(value)
				step = min(step, used/2) // a process that is younger has used less
				used = 0
			}
			used += step
			if i > 0 {
				wantCPU += step
			}
			cpu.points = append(cpu.points, model.SamplePair{Timestamp: at, Value: model.SampleValue(used)})
			for c := range value {
				grew := float64(rapid.IntRange(0, 50).Draw(t, "requests"))
				value[c] += grew
				if i > 0 {
					want[c] += grew
				}
				if value[c] > 0 { // a counter appears with its first request
					requests[c].points = append(requests[c].points, model.SamplePair{Timestamp: at, Value: model.SampleValue(value[c])})
				}
			}
		}
		all := []counter{cpu}
		for c := range requests {
			requests[c].subject = &subject{key: fmt.Sprint(c), caller: fmt.Sprint(c)}
			all = append(all, requests[c])
		}
		got := map[string]float64{}
		for _, g := range together(all, always) {
			require.Equal(t, span{0, model.Time(1000 * (n - 1))}, g.seen)
			got[g.caller] = g.amount
		}
		require.InDelta(t, wantCPU, got[""], 1e-9)
		for c := range want {
			require.InDelta(t, want[c], got[fmt.Sprint(c)], 1e-9)
		}
	})
}

func TestApart(t *testing.T) {
	one := counter{subject: &subject{key: "app", cpu: true}, points: points(10, 11, 2, 3)}
	require.Equal(t, []grown{{cpu: true, amount: 4, seen: span{0, 3000}}}, apart([]counter{one}, always))
	require.Empty(t, apart([]counter{{subject: &subject{key: "app"}, points: points(5)}}, always), "seen once is not observed")

	// Two containers, read at other times: neither counts from zero.
	late := counter{subject: &subject{key: "sidecar", cpu: true}, points: points(0, 0, 70, 71)[2:]}
	require.Equal(t, []grown{
		{cpu: true, amount: 4, seen: span{0, 3000}}, {cpu: true, amount: 1, seen: span{2000, 3000}},
	}, apart([]counter{one, late}, always))

	spoilt := counter{subject: &subject{key: "app"}, points: points(1, -1, 5)}
	require.Equal(t, 4.0, apart([]counter{spoilt}, always)[0].amount)
	require.Len(t, spoilt.points, 3, "the samples are left as they are")
}

func TestDuplicate(t *testing.T) {
	in := func(key, instance, id string, from, n int) counter {
		return counter{
			subject: &subject{key: key}, from: &origin{labels: labels{{"id", id}, {"instance", instance}}, target: instance},
			points: points(make([]float64, from+n)...)[from:],
		}
	}
	for name, c := range map[string]struct {
		counters []counter
		want     string
	}{
		"one":                      {counters: []counter{in("a", "x", "1", 0, 4)}},
		"two counters of a target": {counters: []counter{in("a", "x", "1", 0, 4), in("b", "x", "2", 0, 4)}},
		"one after the other":      {counters: []counter{in("a", "y", "1", 3, 2), in("a", "x", "1", 0, 3)}},
		"a counter twice":          {counters: []counter{in("a", "x", "1", 0, 4), in("a", "x", "2", 2, 4)}, want: `id="1" and "2"`},
		"two targets":              {counters: []counter{in("a", "x", "1", 0, 4), in("b", "y", "2", 2, 4)}, want: `instance="x" and "y"`},
		"outside the window":       {counters: []counter{in("a", "x", "1", 0, 4), in("a", "y", "1", 2000, 2)}},
	} {
		require.Equal(t, c.want, duplicate(c.counters, always), name)
	}
}

func TestRhythm(t *testing.T) {
	newest, every := rhythm(map[string][]counter{"b1": {{points: points(1, 2, 3)}}, "b2": {{points: points(0, 1, 2, 3, 4)[4:]}}})
	require.Equal(t, model.Time(4000), newest)
	require.Equal(t, time.Second, every)
}
