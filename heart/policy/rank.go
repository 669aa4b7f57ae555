package policy

import "math/bits"

// rank gives the problems, which share their delays, the node pairs they need,
// from the slowest to the fastest, equally slow ones by caller and then callee.
// Calls mostly run between the same nodes: sorting the square of the nodes once
// costs less than sorting the links of each call.
func rank(problems []*transport) {
	if len(problems) == 0 {
		return
	}
	ranked := slowestFirst(nodePairs(problems))
	for _, p := range problems {
		p.ranked = ranked
	}
}

// nodePairs lists the pairs of nodes between which any of the calls has a link,
// by caller and then callee.
func nodePairs(problems []*transport) []link {
	delay := problems[0].delay
	words := (delay.nodes + 63) / 64
	used := make([]uint64, delay.nodes*words) // by caller node: the callee nodes, as bits
	for _, p := range problems {
		to := make([]uint64, words)
		for _, g := range p.to.groups {
			to[g.node/64] |= 1 << (g.node % 64)
		}
		for _, g := range p.from.groups {
			for w, set := range to {
				used[g.node*words+w] |= set
			}
		}
	}
	count := 0
	for _, set := range used {
		count += bits.OnesCount64(set)
	}
	pairs := make([]link, 0, count)
	for w, set := range used {
		for ; set != 0; set &= set - 1 {
			from, to := w/words, w%words*64+bits.TrailingZeros64(set)
			pairs = append(pairs, link{delay.between(from, to), int32(from), int32(to)})
		}
	}
	return pairs
}

// slowestFirst sorts links in place or to a new list, equally slow ones as they
// were. It is a radix sort, byte by byte of the distance to the slowest: linear
// in the links.
func slowestFirst(links []link) []link {
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
