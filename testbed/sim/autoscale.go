package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"heartbed/activescale/scaler"
	"heartbed/testbed"
)

// autoscaler runs a scaler model and carries out what it decides. Nil pods
// where the plan's replicas stay as they are.
type autoscaler struct {
	plan   testbed.Autoscale
	model  scaler.Scaler
	rng    *rand.Rand // of start times
	pods   []*pod     // by replica; nil = not of the scaled component
	places []int32    // replicas of the scaled component, in order
	callee int32      // the scaled component
	nextID int
	wanted int
	dirty  bool // the ready pods have changed since the last controller step
	points []testbed.ScalePoint

	// The activator holds requests back while no pod has room.
	held   []heldCall
	area   float64
	marked int64
}

// heldCall is a call that waits at the activator.
type heldCall struct {
	visit, step int32
	n           int
}

func newAutoscaler(w *world) (*autoscaler, error) {
	p := w.plan.Autoscale
	if p == nil {
		return nil, nil
	}
	a := &autoscaler{plan: *p, rng: rand.New(rand.NewPCG(w.plan.Seed, startStream)), pods: make([]*pod, len(w.replicas)), callee: w.components[p.Component].index}
	started := map[string]bool{}
	for i, there := range w.plan.Started() {
		started[w.plan.Replicas[i].Name] = there
	}
	for i, r := range w.replicas {
		if r.Component != p.Component {
			continue
		}
		a.places = append(a.places, int32(i))
		a.pods[i] = &pod{}
		if started[r.Name] {
			old := -int64(standing)
			*a.pods[i] = pod{id: a.nextID, exists: true, running: true, ready: true, created: old, started: old, changed: old}
			a.nextID++
		}
	}
	a.wanted = a.nextID
	var err error
	a.model, err = scaler.New(p.Config(len(a.places), w.plan.Seed))
	return a, err
}

// act lets the scaler do what is due and plans its next turn.
func (a *autoscaler) act(w *world) {
	if replicas, decided := a.model.Act(a.view(w)); decided {
		a.resize(w, replicas)
	}
	w.events.push(max(w.now, int64(a.model.Next())), scale, 0, 0)
}

// view is what a scaler may see now.
func (a *autoscaler) view(w *world) scaler.View {
	a.queue(w.now)
	v := scaler.View{Now: timeOf(w.now), Replicas: a.wanted, Queued: len(a.held), QueuedSeconds: a.area / 1e9}
	for _, i := range a.places {
		p := a.pods[i]
		if !p.exists {
			continue
		}
		s := w.stations[i]
		s.settle(w.now)
		p.load(w.now, 0)
		v.Pods = append(v.Pods, scaler.Pod{
			ID: p.id, Created: timeOf(p.created), Pending: p.pending, Running: p.running, Started: timeOf(p.started), Ready: p.ready,
			Changed: timeOf(p.changed), CPUSeconds: (s.cpu - p.cpuBase) / 1e9, Active: p.active, ActiveSeconds: p.area / 1e9,
		})
	}
	return v
}

// resize creates or deletes pods until there are as many as wanted.
func (a *autoscaler) resize(w *world, wanted int) {
	a.wanted = wanted
	there := a.count(func(p *pod) bool { return p.exists })
	for _, busy := range []bool{false, true} { // places where a deleted pod still answers come last
		for _, i := range a.places {
			if p := a.pods[i]; there < wanted && !p.exists && (p.active > 0) == busy {
				a.create(w, i, p)
				there++
			}
		}
	}
	for ; there > wanted; there-- {
		a.delete(w, a.victim())
	}
	a.note(w)
}

func (a *autoscaler) create(w *world, i int32, p *pod) {
	p.load(w.now, 0)
	*p = pod{
		id: a.nextID, exists: true, pending: true, created: w.now, changed: w.now,
		life: p.life + 1, version: p.version + 1, active: 0, marked: w.now,
	}
	a.nextID++
	w.events.push(w.now+int64(podPending), podTurn, i, p.version)
}

// victim is the pod that a ReplicaSet deletes first: one that is not ready,
// else the one that became ready last.
func (a *autoscaler) victim() int32 {
	worst := none
	for _, i := range a.places {
		p := a.pods[i]
		if !p.exists {
			continue
		}
		if worst == none {
			worst = i
			continue
		}
		q := a.pods[worst]
		if q.ready && !p.ready || q.ready == p.ready && (p.changed > q.changed || p.changed == q.changed && p.id > q.id) {
			worst = i
		}
	}
	return worst
}

// delete takes a pod out of service; requests that it has are answered.
func (a *autoscaler) delete(w *world, i int32) {
	p := a.pods[i]
	p.exists = false
	p.version++
	if p.ready {
		p.setReady(w.now, false)
		a.changed(w)
	}
}

// turn is the next event in a pod's life: its container starts, or is ready.
func (a *autoscaler) turn(w *world, i int32, version uint32) {
	p := a.pods[i]
	if version != p.version {
		return
	}
	if !p.running {
		s := w.stations[i]
		s.settle(w.now)
		p.start(w.now, s.cpu)
		p.version++
		w.events.push(w.now+a.startTime(p), podTurn, i, p.version)
		return
	}
	p.setReady(w.now, true)
	a.changed(w)
	a.note(w)
	a.release(w)
}

// startTime is how long a container takes from its start until it is ready.
func (a *autoscaler) startTime(p *pod) int64 {
	lo, hi := int64(a.plan.StartMin), int64(a.plan.StartMax)
	drawn := lo + a.rng.Int64N(hi-lo+1)
	if p.restarts == 0 {
		drawn -= int64(podPending)
	}
	return max(0, drawn)
}

// kill ends a pod's container for want of memory, with all that it was doing.
func (a *autoscaler) kill(w *world, i int32) {
	p, s := a.pods[i], w.stations[i]
	p.restarts++
	p.life++
	p.version++
	p.load(w.now, -p.active)
	p.running = false
	if p.ready {
		p.setReady(w.now, false)
		a.changed(w)
		a.note(w)
	}
	if p.exists {
		w.events.push(w.now+int64(p.wait()), podTurn, i, p.version)
	}
	s.settle(w.now)
	var lost []int32
	for _, j := range s.jobs {
		lost = append(lost, j.visit)
	}
	for s.queue.len() > 0 {
		lost = append(lost, s.queue.pop())
	}
	s.jobs, s.held = s.jobs[:0], 0
	w.changed(i)
	slices.Sort(lost) // the heap's order is no one's business
	for _, v := range lost {
		w.fail(v)
	}
}

// changed puts the routes in force on the pods that are ready now and calls
// for a controller step, unless it waits for its turn.
func (a *autoscaler) changed(w *world) {
	w.router.compile(w.router.table)
	if !a.plan.WaitForStep && !a.dirty {
		a.dirty = true
		w.events.push(w.now+int64(endpointDelay), endpoints, 0, 0)
	}
}

func (a *autoscaler) count(is func(*pod) bool) int {
	n := 0
	for _, i := range a.places {
		if is(a.pods[i]) {
			n++
		}
	}
	return n
}

// note keeps the replicas of this moment.
func (a *autoscaler) note(w *world) {
	a.points = append(a.points, testbed.ScalePoint{
		At: timeOf(w.now), Wanted: a.wanted,
		Pods:  a.count(func(p *pod) bool { return p.exists }),
		Ready: a.count(func(p *pod) bool { return p.ready }),
	})
}

// scaling lists the replicas over the time since a moment; of those before,
// only the last counts.
func (a *autoscaler) scaling(since int64) []testbed.ScalePoint {
	if a == nil {
		return nil
	}
	var points []testbed.ScalePoint
	for _, p := range a.points {
		p.At = max(0, p.At-time.Duration(since))
		if n := len(points); n > 0 && points[n-1].At == p.At {
			points[n-1] = p
			continue
		}
		points = append(points, p)
	}
	return points
}

// rampDraws is how often a request is drawn anew for a replica that declines;
// then the last one has it, for all may be new.
const rampDraws = 3

// declines says whether a new replica leaves a request to others: it takes as
// much of its part as of the ramp is over.
func (a *autoscaler) declines(r *router, replica int32) bool {
	if a == nil || a.plan.Ramp == 0 || replica == none || a.pods[replica] == nil {
		return false
	}
	age := float64(r.world.now-a.pods[replica].changed) / float64(a.plan.Ramp)
	return age < 1 && r.rng.Float64() >= age
}

// cold is what the CPU time of a request is multiplied with on a replica.
func (a *autoscaler) cold(now int64, replica int32) float64 {
	if a == nil || a.plan.ColdFor == 0 || a.plan.ColdFactor == 0 || a.pods[replica] == nil {
		return 1
	}
	left := 1 - float64(now-a.pods[replica].changed)/float64(a.plan.ColdFor)
	return 1 + (a.plan.ColdFactor-1)*max(0, left)
}

// inherit gives pods that the table in force does not know the routes of one
// that it does: a pod has its configuration before it is ready.
func (a *autoscaler) inherit(r *router) {
	if a == nil {
		return
	}
	for to := range r.components {
		var known *route
		for _, i := range a.places {
			if rt := r.routes[i*r.components+to]; rt != nil {
				known = rt
				break
			}
		}
		for _, i := range a.places {
			if known != nil && r.routes[i*r.components+to] == nil {
				r.install(i, to, known)
			}
		}
	}
}

// present says whether a replica can be seen by the controller: it is ready.
func (w *world) present(i int32) bool {
	return w.scaled == nil || w.scaled.pods[i] == nil || w.scaled.pods[i].ready
}
