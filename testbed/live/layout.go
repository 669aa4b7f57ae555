// Package live is what the backends that run real processes share: addresses
// and distances of a plan, the journal of changes to the host, the scrapes of
// the replicas, the run itself and what is measured beside it. A backend
// stands the plan up and fills a Session.
package live

import (
	"net/netip"
	"slices"
	"time"

	"heartbed/heart"
	"heartbed/tc"
	"heartbed/testbed"
)

// Ports of a replica, and of the controller's xDS server.
const (
	GRPCPort    = 7000
	GatewayPort = 7080
	MetricsPort = 7090
	XDSPort     = 7001
)

// Layout is a plan with its addresses.
type Layout struct {
	Plan     testbed.Plan
	Topology heart.Topology
	Nodes    []Node
	Replicas []Replica  // in the order of Topology.Replicas
	Client   netip.Addr // of the load generator
}

// NewLayout puts the plan's replicas on its nodes; all addresses are the
// backend's to fill in.
func NewLayout(p testbed.Plan) Layout {
	l := Layout{Plan: p, Topology: p.Topology()}
	for _, n := range p.Nodes {
		l.Nodes = append(l.Nodes, Node{Node: n})
	}
	at := l.Topology.NodeIndex()
	for _, r := range l.Topology.Replicas {
		l.Replicas = append(l.Replicas, Replica{Replica: r, On: at[r.Node]})
	}
	return l
}

// Node is a node of the plan.
type Node struct {
	testbed.Node
	Addr  netip.Addr   // of its own; invalid = none that is part of the plan
	Addrs []netip.Addr // of its replicas
}

// Replica is a replica of the plan or the gateway.
type Replica struct {
	heart.Replica
	On   int // index in Layout.Nodes
	Addr netip.Addr
}

// Entries are the replicas that clients connect to: the gateway, or those of
// the entry component.
func (l Layout) Entries() []Replica {
	component := l.Plan.App.Entry
	if l.Plan.Entry.Gateway != "" {
		component = testbed.GatewayComponent
	}
	return slices.DeleteFunc(slices.Clone(l.Replicas), func(r Replica) bool { return r.Component != component })
}

// NodeLimit is the quota of a node's group, in the period of the replicas'
// quotas: in another one the same number of cores may be rounded below theirs,
// which cgroup v1 refuses. Few cores need a period in which they are a quota.
func (l Layout) NodeLimit(cores float64) tc.CPULimit {
	limit := tc.CPULimit{Cores: cores, Period: l.Plan.App.Server.Period.Std()}
	if cores*float64(limit.Period) < float64(leastQuota) {
		limit.Period = 0
	}
	return limit
}

// leastQuota is the kernel's least quota.
const leastQuota = time.Millisecond

// Limit is the quota of a replica's group. cgroup v1 takes none above that of
// the group around it.
func (l Layout) Limit(r Replica) tc.CPULimit {
	server := l.Plan.App.Server
	if server.LimitCores == 0 || r.Component == testbed.GatewayComponent {
		return tc.CPULimit{}
	}
	return tc.CPULimit{
		Cores:  min(server.LimitCores, l.Nodes[r.On].Cores),
		Period: server.Period.Std(), Burst: server.Burst.Std(),
	}
}
