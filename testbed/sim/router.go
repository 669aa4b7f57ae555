package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"heartbed/heart"
	"heartbed/testbed"
)

// route is a heart.Route with indices for names.
type route struct {
	balancer heart.Balancer
	upTo     []uint64  // cumulative weights
	groups   [][]int32 // replicas by share
}

// pick is the outcome of a routing draw and what must be given back with the
// answer.
type pick struct {
	replica int32
	thread  int32 // least request: the proxy thread whose counter was raised
	conn    bool  // per connection: a connection goes back to the pool
	to      int32 // component
}

// router picks replicas as the callers' proxies would.
type router struct {
	world      *world
	rng        *rand.Rand
	components int32
	threads    int32
	routes     []*route           // by caller replica and callee component
	turn       [][]uint32         // by caller and component: next replica of each share
	active     [][]int32          // by caller: outstanding requests by thread and replica
	idle       [][]int32          // by caller and component: replicas of idle connections
	seen       []int64            // requests by caller and callee replica
	calls      []int64            // answered requests by caller and callee component
	table      heart.RoutingTable // in force
	tables     []testbed.TimedTable
}

func newRouter(w *world, rng *rand.Rand) router {
	n, c := len(w.replicas), len(w.components)
	return router{
		world: w, rng: rng, components: int32(c), threads: int32(max(1, w.plan.Network.ProxyThreads)),
		routes: make([]*route, n*c), turn: make([][]uint32, n*c), idle: make([][]int32, n*c),
		active: make([][]int32, n), seen: make([]int64, n*n), calls: make([]int64, c*c),
	}
}

// route puts a table into force.
func (w *world) route(table heart.RoutingTable) error {
	if err := table.Validate(w.visible()); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	w.router.compile(table)
	w.router.tables = append(w.router.tables, testbed.TimedTable{At: time.Duration(w.now), Table: table})
	return nil
}

// compile makes routes of a table, less the replicas that are not ready.
func (r *router) compile(table heart.RoutingTable) {
	w := r.world
	r.table = table
	index := make(map[string]int32, len(w.replicas))
	for i, x := range w.replicas {
		index[x.Name] = int32(i)
	}
	members := make(map[string][]int32, len(table.Groups))
	ready := make(map[string][]int32, len(table.Groups))
	for _, g := range table.Groups {
		for _, name := range g.Replicas {
			members[g.Name] = append(members[g.Name], index[name])
		}
		ready[g.Name] = slices.DeleteFunc(slices.Clone(members[g.Name]), func(i int32) bool { return !w.present(i) })
	}
	clear(r.routes)
	for _, entry := range table.Routes {
		compiled := &route{balancer: entry.Balancer}
		sum := uint64(0)
		for _, s := range entry.Shares {
			if s.Weight == 0 || len(ready[s.To]) == 0 {
				continue
			}
			sum += uint64(s.Weight)
			compiled.upTo = append(compiled.upTo, sum)
			compiled.groups = append(compiled.groups, ready[s.To])
		}
		for _, caller := range members[entry.From] {
			r.install(caller, w.components[entry.To].index, compiled)
		}
	}
	w.scaled.inherit(r)
}

// install makes a route that of a caller.
func (r *router) install(caller, to int32, compiled *route) {
	k := caller*r.components + to
	r.routes[k] = compiled
	r.turn[k] = make([]uint32, len(compiled.groups))
	for s := range r.turn[k] {
		r.turn[k][s] = r.rng.Uint32() // callers do not all start with the same replica
	}
}

var errNoRoute = errors.New("a caller has no route; route a table before the load starts")

// pick chooses the replica of a component for a request of caller; none = no
// replica is ready. A replica that is new may decline and leave the request to
// another draw.
func (r *router) pick(caller, to int32) pick {
	p := r.draw(caller, to)
	for range rampDraws {
		if !r.world.scaled.declines(r, p.replica) {
			break
		}
		r.release(caller, p)
		p = r.draw(caller, to)
	}
	if p.replica != none {
		r.seen[int(caller)*len(r.world.replicas)+int(p.replica)]++
	}
	return p
}

func (r *router) draw(caller, to int32) pick {
	k := caller*r.components + to
	rt := r.routes[k]
	if rt == nil {
		if r.world.err == nil {
			r.world.err = fmt.Errorf("run simulation: replica %q: %w", r.world.replicas[caller].Name, errNoRoute)
		}
		return pick{replica: caller, thread: none, to: to}
	}
	p := pick{thread: none, to: to}
	if len(rt.groups) == 0 {
		p.replica = none
		return p
	}
	switch rt.balancer {
	case heart.LeastRequest:
		p.replica, p.thread = r.leastRequest(caller, r.group(rt))
	case heart.PerConnection:
		p.replica, p.conn = r.connection(k, rt)
	default:
		share := r.share(rt)
		group := rt.groups[share]
		p.replica = group[int(r.turn[k][share]%uint32(len(group)))]
		r.turn[k][share]++
	}
	return p
}

// share draws one of the route's shares in proportion to the weights.
func (r *router) share(rt *route) int {
	if len(rt.upTo) == 1 {
		return 0
	}
	u := r.rng.Uint64N(rt.upTo[len(rt.upTo)-1])
	for i, upTo := range rt.upTo {
		if u < upTo {
			return i
		}
	}
	return len(rt.upTo) - 1
}

func (r *router) group(rt *route) []int32 { return rt.groups[r.share(rt)] }

// leastRequest draws two replicas with replacement and takes the one with
// fewer requests outstanding from this caller's proxy thread; the first drawn
// wins a tie (Envoy, least_request_lb).
func (r *router) leastRequest(caller int32, group []int32) (replica, thread int32) {
	n := int32(len(r.world.replicas))
	if r.active[caller] == nil {
		r.active[caller] = make([]int32, r.threads*n)
	}
	if r.threads > 1 {
		thread = r.rng.Int32N(r.threads)
	}
	count := r.active[caller][thread*n:][:n]
	first, second := group[r.rng.IntN(len(group))], group[r.rng.IntN(len(group))]
	if count[second] < count[first] {
		first = second
	}
	count[first]++
	return first, thread
}

// connection takes an idle connection of the pool or opens one to a replica
// at random. Open connections outlive a change of the table.
func (r *router) connection(k int32, rt *route) (replica int32, pooled bool) {
	for n := len(r.idle[k]); n > 0; n-- {
		replica = r.idle[k][n-1]
		r.idle[k] = r.idle[k][:n-1]
		if r.world.present(replica) {
			return replica, true
		}
	}
	group := r.group(rt)
	return group[r.rng.IntN(len(group))], true
}

// release gives back what a pick took, when its answer has come.
func (r *router) release(caller int32, p pick) {
	if p.thread != none {
		r.active[caller][p.thread*int32(len(r.world.replicas))+p.replica]--
	}
	if p.conn {
		k := caller*r.components + p.to
		if len(r.idle[k]) < r.world.plan.Network.Connections {
			r.idle[k] = append(r.idle[k], p.replica)
		}
	}
}

// answered counts a call for the metrics.
func (r *router) answered(from, to int32) { r.calls[from*r.components+to]++ }

// requests lists the seen requests by caller and callee.
func (r *router) requests() []testbed.SeenShare {
	var out []testbed.SeenShare
	n := len(r.world.replicas)
	for k, count := range r.seen {
		if count > 0 {
			out = append(out, testbed.SeenShare{
				From: r.world.replicas[k/n].Replica, To: r.world.replicas[k%n].Replica, Requests: count,
			})
		}
	}
	return slices.Clip(out)
}
