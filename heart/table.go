package heart

import (
	"errors"
	"fmt"
)

// Balancer says how a caller picks a replica inside a route.
type Balancer string

const (
	// Weighted picks a group at random in proportion to the weights for every
	// request, then takes the group's replicas in turn.
	Weighted Balancer = "weighted"
	// LeastRequest draws two replicas with replacement and takes the one with
	// fewer outstanding requests of this caller (Envoy's least_request_lb).
	LeastRequest Balancer = "least-request"
	// PerConnection picks at random when a connection opens and keeps the
	// replica for the connection's life, as kube-proxy does.
	PerConnection Balancer = "per-connection"
	// RoundRobin takes the replicas of a group in turn.
	RoundRobin Balancer = "round-robin"
)

// Group is a set of replicas of one component that are routed alike: those on
// one node for HEART ("e@n1"), a single replica for LATA ("e1"), or a whole
// component ("e").
type Group struct {
	Name      string
	Component string
	Node      string // empty when the replicas are on several nodes
	Replicas  []string
}

// Share is the part of a route's requests that goes to group To. Weights are
// relative integers; a route's weights need not add up to any fixed number.
type Share struct {
	To     string
	Weight uint32
}

// Route says where caller group From sends its requests to component To.
type Route struct {
	From     string
	To       string
	Balancer Balancer
	Shares   []Share
}

// RoutingTable is a complete decision: every caller group of every call has
// exactly one route. The zero value is the empty table, which routes nothing.
type RoutingTable struct {
	Groups []Group
	Routes []Route
}

// Validate reports every fault of the table against the topology, joined: an
// unknown replica or group, a caller replica with no route or two, a callee
// group of another component, a route whose weights are all zero. It takes
// time in proportion to the size of table and topology.
func (rt RoutingTable) Validate(t Topology) error {
	v := newTableCheck(t, len(rt.Groups))
	for _, g := range rt.Groups {
		v.group(g)
	}
	for _, r := range rt.Routes {
		v.route(r)
	}
	v.coverage()
	return errors.Join(v.errs...)
}

type tableCheck struct {
	topology Topology
	groups   map[string]Group
	replica  map[string]int      // index in topology.Replicas
	calls    map[string][]string // caller component -> callee components
	routed   map[Call][]int      // call -> routes of each caller replica, by rank
	rank     []int               // of each replica among those of its component
	errs     []error
}

func newTableCheck(t Topology, groups int) *tableCheck {
	v := &tableCheck{
		topology: t, groups: make(map[string]Group, groups),
		replica: make(map[string]int, len(t.Replicas)), calls: map[string][]string{}, routed: map[Call][]int{}, rank: make([]int, len(t.Replicas)),
	}
	size := map[string]int{}
	for i, r := range t.Replicas {
		v.replica[r.Name], v.rank[i] = i, size[r.Component]
		size[r.Component]++
	}
	for _, c := range t.Calls {
		if v.routed[c] == nil {
			v.calls[c.From] = append(v.calls[c.From], c.To)
			v.routed[c] = make([]int, size[c.From])
		}
	}
	return v
}

func (v *tableCheck) fault(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *tableCheck) group(g Group) {
	if _, twice := v.groups[g.Name]; twice {
		v.fault("group %q is listed twice", g.Name)
	}
	v.groups[g.Name] = g
	if len(g.Replicas) == 0 {
		v.fault("group %q has no replica", g.Name)
	}
	for _, name := range g.Replicas {
		i, known := v.replica[name]
		if !known {
			v.fault("group %q: replica %q is unknown", g.Name, name)
		} else if c := v.topology.Replicas[i].Component; c != g.Component {
			v.fault("group %q of %q: replica %q belongs to %q", g.Name, g.Component, name, c)
		}
	}
}

func (v *tableCheck) route(r Route) {
	from, known := v.groups[r.From]
	if !known {
		v.fault("route from %q to %q: caller group is unknown", r.From, r.To)
	}
	routed := v.routed[Call{From: from.Component, To: r.To}]
	for _, name := range from.Replicas {
		i, known := v.replica[name]
		if known && routed != nil && v.topology.Replicas[i].Component == from.Component {
			routed[v.rank[i]]++
		}
	}
	switch r.Balancer {
	case Weighted, LeastRequest, PerConnection, RoundRobin:
	default:
		v.fault("route from %q to %q: balancer %q is unknown", r.From, r.To, r.Balancer)
	}
	var sum uint64
	for _, s := range r.Shares {
		sum += uint64(s.Weight)
		if g, known := v.groups[s.To]; !known || g.Component != r.To {
			v.fault("route from %q to %q: %q is not a group of %q", r.From, r.To, s.To, r.To)
		}
	}
	if sum == 0 {
		v.fault("route from %q to %q: all weights are zero", r.From, r.To)
	}
	if sum > 1<<32-1 {
		v.fault("route from %q to %q: weights add up to %d, more than Envoy's limit of 2^32-1", r.From, r.To, sum)
	}
}

// coverage finds the caller replicas that have no route or several.
func (v *tableCheck) coverage() {
	for i, r := range v.topology.Replicas {
		for _, to := range v.calls[r.Component] {
			if n := v.routed[Call{From: r.Component, To: to}][v.rank[i]]; n != 1 {
				v.fault("replica %q has %d routes to %q, expected 1", r.Name, n, to)
			}
		}
	}
}
