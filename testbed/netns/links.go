package netns

import (
	"net/netip"
	"time"

	"heartbed/tc"
)

// roundTrip is the time a message and its answer spend on the way between two
// nodes: the plan's round trip and the sidecars at both ends in both
// directions.
func (l layout) roundTrip(i, j int) time.Duration {
	return l.plan.RTT[i][j] + 2*(l.sidecar(i)+l.sidecar(j))
}

// clientRoundTrip is that between the load generator and a node, which has one
// sidecar in each direction.
func (l layout) clientRoundTrip(i int) time.Duration {
	return l.plan.Entry.ClientRTT.Std() + 2*l.sidecar(i)
}

// sidecar is the time of one traversal of a proxy on the node.
func (l layout) sidecar(i int) time.Duration {
	s := float64(l.plan.Network.Sidecar)
	if l.plan.Network.SidecarScaled {
		s *= l.nodes[i].Slowness
	}
	return time.Duration(s)
}

// linksOf are the links of node i to all nodes, itself included, and to the
// load generator.
func (l layout) linksOf(i int) map[netip.Addr]tc.Link {
	links := map[netip.Addr]tc.Link{}
	if rtt := l.clientRoundTrip(i); rtt > 0 {
		links[clientAddr] = tc.Link{RTT: rtt}
	}
	for j := range l.nodes {
		l.addLinks(links, j, tc.Link{RTT: l.roundTrip(i, j), Jitter: l.plan.Network.Jitter.Std()})
	}
	return links
}

// clientLinks are those of the load generator. They have no jitter, which is
// between replicas.
func (l layout) clientLinks() map[netip.Addr]tc.Link {
	links := map[netip.Addr]tc.Link{}
	for j := range l.nodes {
		l.addLinks(links, j, tc.Link{RTT: l.clientRoundTrip(j)})
	}
	return links
}

// addLinks adds a link to every address of node j.
func (l layout) addLinks(links map[netip.Addr]tc.Link, j int, link tc.Link) {
	if link == (tc.Link{}) {
		return
	}
	links[l.nodes[j].addr] = link
	for _, a := range l.nodes[j].addrs {
		links[a] = link
	}
}

// shapesItself says whether a node delays what it sends to itself, which the
// kernel's queue of an interface never sees.
func (l layout) shapesItself() bool {
	if l.plan.Network.Jitter > 0 {
		return true
	}
	for i := range l.nodes {
		if l.roundTrip(i, i) > 0 {
			return true
		}
	}
	return false
}
