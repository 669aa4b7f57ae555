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
	faults := []error{p.Validate(), p.App.Validate(), p.Load.Validate()}
	if len(p.Nodes) > maxNodes {
		faults = append(faults, fmt.Errorf("nodes: found %d, expected at most %d", len(p.Nodes), maxNodes))
	}
	if err := errors.Join(faults...); err != nil {
		return live.Layout{}, err
	}
	l := live.NewLayout(p)
	l.Client = clientAddr
	for i := range l.Nodes {
		l.Nodes[i].Addr = hostAddr(i, 1)
	}
	for k := range l.Replicas {
		r := &l.Replicas[k]
		n := &l.Nodes[r.On]
		if len(n.Addrs) == maxReplicas {
			return live.Layout{}, fmt.Errorf("node %s: found more than %d replicas", n.Name, maxReplicas)
		}
		r.Addr = hostAddr(r.On, 2+len(n.Addrs))
		n.Addrs = append(n.Addrs, r.Addr)
	}
	return l, nil
}

func hostAddr(node, k int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(node + 1), byte(k)})
}
