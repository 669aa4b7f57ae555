package policy

import "heartbed/heart"

// linkFilter is the first half of HEART's second stage (NTAM): it takes slow
// links out of a call as far as the others can carry all of its traffic.
type linkFilter struct {
	on       bool
	few      float64 // of all links
	skip     bool
	minGapUs float64
}

// link is a pair of groups and the round-trip time between them.
type link struct {
	us       int64
	row, col int32 // caller and callee group
}

// apply filters the links of p and leaves there which are open, which the
// solver should start with, and the trace.
//
// Few slow links are all removed; while the rest cannot carry the traffic the
// fastest of them comes back. Many are removed one by one from the slowest on;
// the first that is needed comes back and ends the removal.
func (f linkFilter) apply(p *transport) {
	links := p.slowestFirst()
	c := newCarrier(p.supply, p.demand)
	high := f.high(links, p)
	var removed, restored []link
	if 2*len(high) <= len(links) && float64(len(high)) <= f.few*float64(len(links)) {
		removed, restored = removeFew(c, links, high)
	} else {
		removed, restored = f.removeMany(c, links, high)
	}
	p.high, p.removed, p.restored = p.names(high), p.names(removed), p.names(restored)
	p.filtered = len(high)
	p.open, p.start = c.open, startLinks(c, links)
}

func removeFew(c *carrier, links, high []link) (removed, restored []link) {
	for _, l := range high {
		c.drop(l)
	}
	c.fill(links)
	left := len(high)
	for c.short > 0 && left > 0 {
		left--
		c.reopen(high[left])
		restored = append(restored, high[left])
	}
	return high[:left], restored
}

func (f linkFilter) removeMany(c *carrier, links, high []link) (removed, restored []link) {
	c.fill(links)
	for _, l := range high {
		if c.close(l) {
			removed = append(removed, l)
			continue
		}
		restored = append(restored, l)
		if !f.skip {
			break
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
func startLinks(c *carrier, links []link) []link {
	const each = 8
	rowLinks, colLinks := make([]int, c.rows), make([]int, c.cols)
	start := make([]link, 0, min(len(links), 2*each*(c.rows+c.cols)))
	for k := len(links) - 1; k >= 0; k-- {
		l := links[k]
		near := rowLinks[l.row] < each || colLinks[l.col] < each
		if !near && c.flow[int(l.row)*c.cols+int(l.col)] == 0 || !c.isOpen(l) {
			continue
		}
		rowLinks[l.row]++
		colLinks[l.col]++
		start = append(start, l)
	}
	return start
}

// slowestFirst lists all links from the slowest to the fastest, equally slow
// ones by caller and then callee. It is a radix sort, byte by byte of the
// distance to the slowest: linear in the links, whose number is the square of
// that of the groups.
func (p *transport) slowestFirst() []link {
	links := p.allLinks()
	slowest, fastest := int64(0), int64(0)
	for k, l := range links {
		if k == 0 {
			slowest, fastest = l.us, l.us
		}
		slowest, fastest = max(slowest, l.us), min(fastest, l.us)
	}
	sorted := make([]link, len(links))
	for shift := 0; shift < 64 && (slowest-fastest)>>shift > 0; shift += 8 {
		var next [257]int
		for _, l := range links {
			next[(slowest-l.us)>>shift&255+1]++
		}
		for b := range 256 {
			next[b+1] += next[b]
		}
		for _, l := range links {
			b := (slowest - l.us) >> shift & 255
			sorted[next[b]] = l
			next[b]++
		}
		links, sorted = sorted, links
	}
	return links
}

func (p *transport) allLinks() []link {
	links := make([]link, 0, p.links())
	for i, from := range p.from.groups {
		for j, to := range p.to.groups {
			links = append(links, link{p.delay.between(from.node, to.node), int32(i), int32(j)})
		}
	}
	return links
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
