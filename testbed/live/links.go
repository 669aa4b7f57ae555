package live

import (
	"net/netip"
	"time"

	"heartbed/tc"
)

// RoundTrip is the time a message and its answer spend on the way between two
// nodes: the plan's round trip and the sidecars at both ends in both
// directions.
func (l Layout) RoundTrip(i, j int) time.Duration {
	return l.Plan.RTT[i][j] + 2*(l.sidecar(i)+l.sidecar(j))
}

// ClientRoundTrip is that between the load generator and a node, which has one
// sidecar in each direction.
func (l Layout) ClientRoundTrip(i int) time.Duration {
	return l.Plan.Entry.ClientRTT.Std() + 2*l.sidecar(i)
}

// sidecar is the time of one traversal of a proxy on the node.
func (l Layout) sidecar(i int) time.Duration {
	s := float64(l.Plan.Network.Sidecar)
	if l.Plan.Network.SidecarScaled {
		s *= l.Nodes[i].Slowness
	}
	return time.Duration(s)
}

// LinksOf are the links of node i to all nodes, itself included, and to the
// load generator.
func (l Layout) LinksOf(i int) map[netip.Addr]tc.Link {
	links := map[netip.Addr]tc.Link{}
	if rtt := l.ClientRoundTrip(i); rtt > 0 {
		links[l.Client] = tc.Link{RTT: rtt}
	}
	for j := range l.Nodes {
		l.addLinks(links, j, tc.Link{RTT: l.RoundTrip(i, j), Jitter: l.Plan.Network.Jitter.Std()})
	}
	return links
}

// ClientLinks are those of the load generator. They have no jitter, which is
// between replicas.
func (l Layout) ClientLinks() map[netip.Addr]tc.Link {
	links := map[netip.Addr]tc.Link{}
	for j := range l.Nodes {
		l.addLinks(links, j, tc.Link{RTT: l.ClientRoundTrip(j)})
	}
	return links
}

// addLinks adds a link to every address of node j.
func (l Layout) addLinks(links map[netip.Addr]tc.Link, j int, link tc.Link) {
	if link == (tc.Link{}) {
		return
	}
	if own := l.Nodes[j].Addr; own.IsValid() {
		links[own] = link
	}
	for _, a := range l.Nodes[j].Addrs {
		links[a] = link
	}
}

// ShapesItself says whether a node delays what it sends to itself, which the
// kernel's queue of an interface never sees.
func (l Layout) ShapesItself() bool {
	if l.Plan.Network.Jitter > 0 {
		return true
	}
	for i := range l.Nodes {
		if l.RoundTrip(i, i) > 0 {
			return true
		}
	}
	return false
}
