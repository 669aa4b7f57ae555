package policy

import (
	"math/bits"
	"slices"

	"heartbed/heart"
)

// linkFilter is the first half of HEART's second stage (NTAM): it takes slow
// links out of a call as far as the others can carry all of its traffic.
type linkFilter struct {
	on       bool
	few      float64 // of all links
	skip     bool
	minGapUs float64
}

// link is a pair of groups and the round-trip time between them, or of nodes
// where it is not yet said which call it belongs to (rank).
type link struct {
	us       int64
	row, col int32 // caller and callee
}

// apply filters the links of p and leaves there which are open, which the
// solver should start with, and the trace.
//
// Few slow links are all removed; while the rest cannot carry the traffic the
// fastest of them comes back. Many are removed one by one from the slowest on;
// the first that is needed comes back and ends the removal. Both end with the
// same links, as many of the slowest as can go, and differ in what came back.
func (f linkFilter) apply(p *transport) {
	links := p.slowestFirst()
	c := newCarrier(p.supply, p.demand)
	high := f.high(links, p)
	few := 2*len(high) <= len(links) && float64(len(high)) <= f.few*float64(len(links))
	var removed, restored []link
	switch {
	case f.skip && !few:
		removed, restored = removeEach(c, links, high)
	case few:
		n := removeSlowest(c, links, high)
		removed, restored = high[:n], slices.Clone(high[n:])
		slices.Reverse(restored)
	default:
		n := removeSlowest(c, links, high)
		removed, restored = high[:n], high[n:min(n+1, len(high))]
	}
	p.high, p.removed, p.restored = p.names(high), p.names(removed), p.names(restored)
	p.filtered = len(high)
	p.open, p.start = c.open, p.startLinks(c, links)
}

// removeSlowest removes as many of the slowest links as can go and returns
// their number: all of them first, then the fastest is opened again until the
// open ones carry everything.
func removeSlowest(c *carrier, links, high []link) int {
	for _, l := range high {
		c.drop(l)
	}
	c.fill(links)
	left := len(high)
	for ; c.short > 0 && left > 0; left-- {
		c.reopen(high[left-1])
	}
	return left
}

// removeEach tries one link after the other, from the slowest on, and leaves
// those that are needed.
func removeEach(c *carrier, links, high []link) (removed, restored []link) {
	c.fill(links)
	for _, l := range high {
		if c.close(l) {
			removed = append(removed, l)
		} else {
			restored = append(restored, l)
		}
	}
	return removed, restored
}

// high is the slow cluster of the measured links, slowest first: none if the
// filter is off, all links are equally slow or the gap is too small to count.
func (f linkFilter) high(links []link, p *transport) []link {
	if !f.on {
		return nil
	}
	if p.delay.missing > 0 {
		links = p.measured(links)
	}
	n := splitHigh(links)
	if n == 0 || float64(links[n-1].us-links[n].us) < f.minGapUs {
		return nil
	}
	return links[:n]
}

// splitHigh is k-means with k = 2 in one dimension, solved exactly: of all
// cuts of the sorted values the one with the least sum of squared distances to
// the two means (Wang and Song 2011). links is sorted from the slowest on; the
// result is the size of the slow cluster, 0 when all are equal. Of several
// best cuts the one with the fewest slow links wins.
func splitHigh(links []link) int {
	n := len(links)
	if n < 2 {
		return 0
	}
	// With values counted from the least, a cut is best where the sum over the
	// clusters of (sum of values)^2 / size is largest.
	least, total := float64(links[n-1].us), 0.0
	for _, l := range links {
		total += float64(l.us) - least
	}
	best, high, sum := 0.0, 0, 0.0
	for k := 1; k < n; k++ {
		sum += float64(links[k-1].us) - least
		if links[k-1].us == links[k].us {
			continue
		}
		score := sum*sum/float64(k) + (total-sum)*(total-sum)/float64(n-k)
		if score > best {
			best, high = score, k
		}
	}
	return high
}

// startLinks picks the links with which the solver starts: the fastest open
// ones of each group, and those of a flow that is known to be possible.
func (p *transport) startLinks(c *carrier, links []link) []link {
	const each = 4
	rowLinks, colLinks := make([]int, c.rows), make([]int, c.cols)
	start := make([]link, 0, min(len(links), 2*each*(c.rows+c.cols)))
	lacking := c.rows + c.cols // groups that have fewer
	for k := len(links) - 1; k >= 0 && lacking > 0; k-- {
		l := links[k]
		if rowLinks[l.row] >= each && colLinks[l.col] >= each || !c.isOpen(l) {
			continue
		}
		if rowLinks[l.row]++; rowLinks[l.row] == each {
			lacking--
		}
		if colLinks[l.col]++; colLinks[l.col] == each {
			lacking--
		}
		c.setUsed(int(l.row), int(l.col), false) // not twice
		start = append(start, l)
	}
	for k, rows := range c.used {
		col := k / c.rowWords
		for ; rows != 0; rows &= rows - 1 {
			row := k%c.rowWords*64 + bits.TrailingZeros64(rows)
			us := p.delay.between(p.from.groups[row].node, p.to.groups[col].node)
			start = append(start, link{us, int32(row), int32(col)})
		}
	}
	return start
}

// slowestFirst lists all links of the call, ordered as the ranked node pairs.
func (p *transport) slowestFirst() []link {
	rowOf, colOf := groupsByNode(p.from.groups, p.delay.nodes), groupsByNode(p.to.groups, p.delay.nodes)
	links := make([]link, 0, p.links())
	for _, l := range p.ranked {
		if row, col := rowOf[l.row], colOf[l.col]; row >= 0 && col >= 0 {
			links = append(links, link{l.us, row, col})
		}
	}
	return links
}

// groupsByNode is the index of the group on each node, -1 where there is none.
func groupsByNode(groups []group, nodes int) []int32 {
	at := make([]int32, nodes)
	for n := range at {
		at[n] = -1
	}
	for i, g := range groups {
		at[g.node] = int32(i)
	}
	return at
}

func (p *transport) measured(links []link) []link {
	var known []link
	for _, l := range links {
		if p.delay.known(p.from.groups[l.row].node, p.to.groups[l.col].node) {
			known = append(known, l)
		}
	}
	return known
}

// names are the links as a trace shows them, not more than it may show.
func (p *transport) names(links []link) []heart.LinkName {
	names := make([]heart.LinkName, 0, min(len(links), p.traceLinks))
	for _, l := range links[:min(len(links), p.traceLinks)] {
		names = append(names, heart.LinkName{From: p.from.groups[l.row].name, To: p.to.groups[l.col].name})
	}
	return names
}
