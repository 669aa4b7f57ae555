package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"heartbed/heart"
	"heartbed/heart/flow"
)

// problem makes the transport problem with delays ms[i][j] from caller group i
// to callee group j; -1 = not measured. Groups are on nodes of their own.
func problem(supply, demand []int64, ms [][]int) *transport {
	rows, cols := len(supply), len(demand)
	t := heart.Topology{RTT: make([][]time.Duration, rows+cols)}
	p := &transport{supply: supply, demand: demand, traceLinks: 1000}
	p.from.name, p.to.name = "u", "v"
	for n := range rows + cols {
		t.Nodes = append(t.Nodes, heart.Node{})
		t.RTT[n] = make([]time.Duration, rows+cols)
	}
	for i := range rows {
		p.from.groups = append(p.from.groups, group{name: fmt.Sprintf("u%d", i+1), node: i})
		for j := range cols {
			t.RTT[i][rows+j] = time.Duration(ms[i][j]) * time.Millisecond
			if ms[i][j] < 0 {
				t.RTT[i][rows+j] = heart.Unmeasured
			}
			t.RTT[rows+j][i] = t.RTT[i][rows+j]
		}
	}
	for j := range cols {
		p.to.groups = append(p.to.groups, group{name: fmt.Sprintf("v%d", j+1), node: rows + j})
	}
	p.delay = newDelays(t)
	rank([]*transport{p})
	return p
}

// allLinks are the links by caller and then callee.
func (p *transport) allLinks() []link {
	links := make([]link, 0, p.links())
	for i, from := range p.from.groups {
		for j, to := range p.to.groups {
			links = append(links, link{p.delay.between(from.node, to.node), int32(i), int32(j)})
		}
	}
	return links
}

// units reads the flow as a matrix.
func (p *transport) units() [][]int64 {
	x := make([][]int64, len(p.supply))
	for i, shares := range p.sent {
		x[i] = make([]int64, len(p.demand))
		for _, s := range shares {
			j := slices.IndexFunc(p.to.groups, func(g group) bool { return g.name == s.To })
			x[i][j] = int64(s.Weight)
		}
	}
	return x
}

func names(pairs ...[2]int) []heart.LinkName {
	links := []heart.LinkName{}
	for _, p := range pairs {
		links = append(links, heart.LinkName{From: fmt.Sprintf("u%d", p[0]), To: fmt.Sprintf("v%d", p[1])})
	}
	return links
}

// standard is the filter with its default parameters.
var standard = linkFilter{on: true, few: 0.5}

// HEART, NTAM: vectors N1 to N6. Costs are in ms times units. N2 is the
// paper's example of a critical path that falls from 100 to 80 ms while the
// mean rises from 55 to 80.
func TestNTAM(t *testing.T) {
	n2 := [][]int{{10, 80}, {80, 100}}
	n3 := [][]int{{1, 3, 60}, {4, 2, 5}}
	off := linkFilter{}
	cases := map[string]struct {
		filter                  linkFilter
		supply, demand          []int64
		ms                      [][]int
		cost                    int64
		units                   [][]int64
		high, removed, restored []heart.LinkName
	}{
		"N1 least cost": {off, []int64{60, 40}, []int64{30, 45, 25}, [][]int{{1, 10, 4}, {8, 2, 6}},
			260, [][]int64{{30, 5, 25}, {0, 40, 0}}, names(), names(), names()},
		"N2 unfiltered": {off, []int64{50, 50}, []int64{50, 50}, n2,
			5500, [][]int64{{50, 0}, {0, 50}}, names(), names(), names()},
		"N2 many slow links": {standard, []int64{50, 50}, []int64{50, 50}, n2,
			8000, [][]int64{{0, 50}, {50, 0}}, names([2]int{2, 2}, [2]int{1, 2}, [2]int{2, 1}), names([2]int{2, 2}), names([2]int{1, 2})},
		"N3 few, feasible": {standard, []int64{60, 40}, []int64{30, 45, 25}, n3,
			275, [][]int64{{30, 30, 0}, {0, 15, 25}}, names([2]int{1, 3}), names([2]int{1, 3}), names()},
		"N3 few, reinstated": {standard, []int64{80, 20}, []int64{30, 40, 30}, n3,
			850, [][]int64{{30, 40, 10}, {0, 0, 20}}, names([2]int{1, 3}), names(), names([2]int{1, 3})},
		"N5 one link": {standard, []int64{100}, []int64{100}, [][]int{{7}},
			700, [][]int64{{100}}, names(), names(), names()},
		"N6 a slow link alone serves a group": {standard, []int64{100}, []int64{90, 10}, [][]int{{1, 50}},
			590, [][]int64{{90, 10}}, names([2]int{1, 2}), names(), names([2]int{1, 2})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := problem(c.supply, c.demand, c.ms)
			c.filter.apply(p)
			require.NoError(t, p.solve())
			require.Equal(t, c.cost*1000, p.cost)
			require.Equal(t, c.units, p.units())
			require.Equal(t, c.high, p.high, "high")
			require.Equal(t, c.removed, p.removed, "removed")
			require.Equal(t, c.restored, p.restored, "restored")
		})
	}
}

// HEART, NTAM: equal delays leave no slow cluster. Vector N4.
func TestNTAMEqualDelays(t *testing.T) {
	p := problem([]int64{60, 40}, []int64{30, 45, 25}, [][]int{{5, 5, 5}, {5, 5, 5}})
	standard.apply(p)
	require.NoError(t, p.solve())
	require.Empty(t, p.high)
	require.Equal(t, int64(500_000), p.cost)
}

// Skip goes on after a link that is needed; stop leaves the faster ones.
func TestNTAMManySkips(t *testing.T) {
	ms := [][]int{{1, 50}, {60, 40}} // v2 needs either 50 or 40; u2 needs 60 or 40
	for skip, removed := range map[bool][]heart.LinkName{
		false: names([2]int{2, 1}),
		true:  names([2]int{2, 1}, [2]int{1, 2}),
	} {
		f := linkFilter{on: true, few: 0.2, skip: skip}
		p := problem([]int64{60, 40}, []int64{60, 40}, ms)
		f.apply(p)
		require.Len(t, p.high, 3)
		if skip {
			require.Equal(t, removed, p.removed)
			require.Equal(t, names([2]int{2, 2}), p.restored)
		} else {
			require.Subset(t, p.removed, removed)
		}
	}
}

// A gap below the guard is noise; a link nobody measured is never slow.
func TestNTAMGuards(t *testing.T) {
	p := problem([]int64{50, 50}, []int64{50, 50}, [][]int{{1, 1}, {1, 2}})
	linkFilter{on: true, few: 0.5, minGapUs: 1000}.apply(p)
	require.Len(t, p.high, 1, "a gap of the guard itself counts")
	linkFilter{on: true, few: 0.5, minGapUs: 1001}.apply(p)
	require.Empty(t, p.high)

	p = problem([]int64{50, 50}, []int64{50, 50}, [][]int{{1, -1}, {20, 1}})
	standard.apply(p)
	require.Equal(t, names([2]int{2, 1}), p.high)
	require.Equal(t, int64(20_000), p.delay.between(0, 3), "the largest known delay stands in")
}

// The exact split against trying every cut by the definition.
func TestSplitHigh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.SliceOfN(rapid.Int64Range(0, 40), 1, 12).Draw(t, "us")
		slices.Sort(us)
		slices.Reverse(us)
		links := make([]link, len(us))
		for k := range us {
			links[k].us = us[k]
		}
		best := spread(us)
		got := splitHigh(links)
		if us[0] == us[len(us)-1] {
			require.Zero(t, got)
			return
		}
		for k := 1; k < len(us); k++ {
			best = min(best, spread(us[:k])+spread(us[k:]))
		}
		require.InDelta(t, best, spread(us[:got])+spread(us[got:]), 1e-6)
		require.Greater(t, us[got-1], us[got], "equal delays stay together")
	})
}

// spread is the sum of squared distances to the mean.
func spread(us []int64) float64 {
	var m mean
	for _, x := range us {
		m.add(float64(x))
	}
	sum := 0.0
	for _, x := range us {
		sum += (float64(x) - m.value()) * (float64(x) - m.value())
	}
	return sum
}

// The radix sort against the standard library, over all magnitudes, for a call
// and its reverse that are ranked together.
func TestSlowestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		there := drawProblem(t, 6, rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, 100_000_000)))
		back := &transport{from: there.to, to: there.from, delay: there.delay}
		rank([]*transport{there, back})
		for _, p := range []*transport{there, back} {
			want := p.allLinks()
			slices.SortStableFunc(want, func(a, b link) int { return int(b.us - a.us) })
			require.Equal(t, want, p.slowestFirst())
		}
	})
}

func drawProblem(t *rapid.T, most int, delay *rapid.Generator[int]) *transport {
	rows, cols := rapid.IntRange(1, most).Draw(t, "rows"), rapid.IntRange(1, most).Draw(t, "cols")
	const total = 60
	split := func(n int) []int64 {
		parts := rapid.SliceOfN(rapid.Float64Range(0.01, 1), n, n).Draw(t, "parts")
		return apportionAll(parts, total)
	}
	ms := make([][]int, rows)
	for i := range ms {
		ms[i] = rapid.SliceOfN(delay, cols, cols).Draw(t, "ms")
	}
	return problem(split(rows), split(cols), ms)
}

// literal is the procedure word for word, with one maximum flow after another:
// remove, test, restore.
func literal(t require.TestingT, f linkFilter, p *transport) (removed, restored []link) {
	links := p.slowestFirst()
	high := f.high(links, p)
	out := map[link]bool{}
	feasible := func() bool {
		n := flow.New(0, 0)
		for _, s := range p.supply {
			n.AddNode(s)
		}
		for _, d := range p.demand {
			n.AddNode(-d)
		}
		for _, l := range links {
			if !out[l] {
				n.AddArc(int(l.row), len(p.supply)+int(l.col), flow.Unlimited, 0)
			}
		}
		routed, total, err := n.Routable()
		require.NoError(t, err)
		return routed == total
	}
	if 2*len(high) <= len(links) && float64(len(high)) <= f.few*float64(len(links)) {
		for _, l := range high {
			out[l] = true
		}
		for k := len(high) - 1; k >= 0 && !feasible(); k-- {
			delete(out, high[k])
			restored = append(restored, high[k])
		}
		return high[:len(high)-len(restored)], restored
	}
	for _, l := range high {
		out[l] = true
		if feasible() {
			removed = append(removed, l)
			continue
		}
		delete(out, l)
		if restored = append(restored, l); !f.skip {
			break
		}
	}
	return removed, restored
}

// The filter, which keeps one flow up to date, ends with the very links of the
// literal procedure; and the flow that follows is the optimum over them.
func TestFilterIsLiteral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := linkFilter{
			on: true, few: rapid.SampledFrom([]float64{0, 0.3, 0.5}).Draw(t, "few"), skip: rapid.Bool().Draw(t, "skip"),
		}
		p := drawProblem(t, 7, rapid.IntRange(-1, 12))
		removed, restored := literal(t, f, p)
		f.apply(p)
		require.Equal(t, p.names(removed), p.removed)
		require.Equal(t, p.names(restored), p.restored)

		require.NoError(t, p.solve())
		require.Equal(t, optimum(t, p, removed), p.cost)
		sent, got := make([]int64, len(p.supply)), make([]int64, len(p.demand))
		for i, row := range p.units() {
			for j, units := range row {
				sent[i] += units
				got[j] += units
				if units > 0 {
					name := heart.LinkName{From: p.from.groups[i].name, To: p.to.groups[j].name}
					require.NotContains(t, p.removed, name, "a removed link carries something")
				}
			}
		}
		require.Equal(t, p.supply, sent)
		require.Equal(t, p.demand, got)
	})
}

// optimum solves the whole problem at once.
func optimum(t require.TestingT, p *transport, removed []link) int64 {
	n := flow.New(0, 0)
	for _, s := range p.supply {
		n.AddNode(s)
	}
	for _, d := range p.demand {
		n.AddNode(-d)
	}
	for _, l := range p.allLinks() {
		if !slices.Contains(removed, l) {
			n.AddArc(int(l.row), len(p.supply)+int(l.col), flow.Unlimited, l.us)
		}
	}
	s, err := n.Solve()
	require.NoError(t, err)
	require.NoError(t, flow.Verify(n, s))
	return s.Cost
}

// Column generation is at work only where groups have more links than the
// solver starts with.
func TestSolveLarge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 40, rapid.IntRange(0, 1000))
		linkFilter{}.apply(p)
		require.NoError(t, p.solve())
		require.Equal(t, optimum(t, p, nil), p.cost)
	})
}

// Largest remainder: the parts add up, none is off by a whole unit, and every
// group gets one.
func TestApportion(t *testing.T) {
	require.Equal(t, []int64{6667, 1667, 1666}, apportion([]float64{4, 1, 1}, 10_000))
	require.Equal(t, []int64{9999, 1}, apportionAll([]float64{1, 1e-12}, 10_000))
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOfN(rapid.Float64Range(1e-9, 1e9), 1, 50).Draw(t, "amounts")
		sum, exact := int64(0), 0.0
		for _, a := range amounts {
			exact += a
		}
		for i, units := range apportion(amounts, 10_000) {
			sum += units
			require.InDelta(t, amounts[i]/exact*10_000, units, 1)
		}
		require.Equal(t, int64(10_000), sum)
		sum = 0
		for _, units := range apportionAll(amounts, 10_000) {
			sum += units
			require.Positive(t, units)
		}
		require.Equal(t, int64(10_000), sum)
	})
}
