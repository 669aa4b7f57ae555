package netns

import (
	"errors"
	"fmt"
	"net/netip"

	"heartbed/testbed"
	"heartbed/testbed/live"
)

// Addresses. They are private to a run's namespaces, so every run has the same.
var (
	controlAddr = netip.AddrFrom4([4]byte{10, 77, 0, 1}) // controller: xDS server and scrapes
	clientAddr  = netip.AddrFrom4([4]byte{10, 77, 0, 2}) // load generator
)

const (
	subnetBits  = 16
	maxNodes    = 200
	maxReplicas = 250 // on one node
)

// newLayout checks the plan for what the backend needs and deals addresses:
// node i has the addresses 10.77.(i+1).k, k = 1 for itself and from 2 on one
// for each of its replicas.
func newLayout(p testbed.Plan) (live.Layout, error) {
	l := live.Layout{Plan: p, Topology: p.Topology(), Client: clientAddr}
	faults := []error{p.Validate(), p.App.Validate(), p.Load.Validate()}
	if len(p.Nodes) > maxNodes {
		faults = append(faults, fmt.Errorf("nodes: found %d, expected at most %d", len(p.Nodes), maxNodes))
	}
	if err := errors.Join(faults...); err != nil {
		return live.Layout{}, err
	}
	for i, n := range p.Nodes {
		l.Nodes = append(l.Nodes, live.Node{Node: n, Addr: hostAddr(i, 1)})
	}
	at := l.Topology.NodeIndex()
	for _, r := range l.Topology.Replicas {
		i := at[r.Node]
		n := &l.Nodes[i]
		if len(n.Addrs) == maxReplicas {
			return live.Layout{}, fmt.Errorf("node %s: found more than %d replicas", n.Name, maxReplicas)
		}
		addr := hostAddr(i, 2+len(n.Addrs))
		n.Addrs = append(n.Addrs, addr)
		l.Replicas = append(l.Replicas, live.Replica{Replica: r, On: i, Addr: addr})
	}
	return l, nil
}

func hostAddr(node, k int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(node + 1), byte(k)})
}
