package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"heartbed/heart"
	"heartbed/testbed"
)

// Addresses. They are private to a run's namespaces, so every run has the same.
var (
	controlAddr = netip.AddrFrom4([4]byte{10, 77, 0, 1}) // controller: xDS server and scrapes
	clientAddr  = netip.AddrFrom4([4]byte{10, 77, 0, 2}) // load generator
)

const (
	subnetBits  = 16
	grpcPort    = 7000
	gatewayPort = 7080
	metricsPort = 7090
	xdsPort     = 7001
	maxNodes    = 200
	maxReplicas = 250 // on one node
)

// layout is a plan with its addresses: node i has the addresses 10.77.(i+1).k,
// k = 1 for itself and from 2 on one for each of its replicas.
type layout struct {
	plan     testbed.Plan
	topology heart.Topology
	nodes    []nodeLayout
	replicas []replicaLayout // in the order of topology.Replicas
}

type nodeLayout struct {
	testbed.Node
	addr  netip.Addr
	addrs []netip.Addr // of its replicas
}

type replicaLayout struct {
	heart.Replica
	node int // index in layout.nodes
	addr netip.Addr
}

// newLayout checks the plan for what the backend needs and deals addresses.
func newLayout(p testbed.Plan) (layout, error) {
	l := layout{plan: p, topology: p.Topology()}
	faults := []error{p.Validate(), p.App.Validate(), p.Load.Validate()}
	if len(p.Nodes) > maxNodes {
		faults = append(faults, fmt.Errorf("nodes: found %d, expected at most %d", len(p.Nodes), maxNodes))
	}
	if err := errors.Join(faults...); err != nil {
		return layout{}, err
	}
	for i, n := range p.Nodes {
		l.nodes = append(l.nodes, nodeLayout{Node: n, addr: hostAddr(i, 1)})
	}
	at := l.topology.NodeIndex()
	for _, r := range l.topology.Replicas {
		i := at[r.Node]
		n := &l.nodes[i]
		if len(n.addrs) == maxReplicas {
			return layout{}, fmt.Errorf("node %s: found more than %d replicas", n.Name, maxReplicas)
		}
		addr := hostAddr(i, 2+len(n.addrs))
		n.addrs = append(n.addrs, addr)
		l.replicas = append(l.replicas, replicaLayout{Replica: r, node: i, addr: addr})
	}
	return l, nil
}

func hostAddr(node, k int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(node + 1), byte(k)})
}

// entries are the replicas that clients connect to: the gateway, or those of
// the entry component.
func (l layout) entries() []replicaLayout {
	component := l.plan.App.Entry
	if l.plan.Entry.Gateway != "" {
		component = testbed.GatewayComponent
	}
	return slices.DeleteFunc(slices.Clone(l.replicas), func(r replicaLayout) bool { return r.Component != component })
}
