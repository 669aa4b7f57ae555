package sim

import "heartbed/workloads"

// none marks the absence of a visit, request or station.
const none int32 = -1

// visit is one request at one component, from the moment its caller sent it
// until the caller has the answer. Visits are reused.
type visit struct {
	parent  int32  // the visit that called; none = the client
	request int32  // the client's request, for a visit without parent
	version uint32 // of that request
	replica int32
	caller  int32 // the replica that called; none = the client
	picked  pick
	step    int32
	pending int32 // calls not yet answered
	failed  bool
	life    uint32 // of the container that it runs in; see pod
	work    float64
	draws   workloads.Draws
}

func (w *world) newVisit() int32 {
	if n := len(w.free); n > 0 {
		v := w.free[n-1]
		w.free = w.free[:n-1]
		return v
	}
	w.visits = append(w.visits, visit{})
	return int32(len(w.visits) - 1)
}

// begin is the arrival of a visit at its replica.
func (w *world) begin(v int32) {
	if w.lost(v) {
		w.fail(v)
		return
	}
	if w.plan.App.Server.HoldSlot {
		s := w.stations[w.visits[v].replica]
		if s.slots > 0 && s.held >= s.slots {
			s.queue.push(v)
			return
		}
		s.held++
	}
	w.advance(v)
}

// advance does the visit's next steps until one takes time, or answers.
func (w *world) advance(v int32) {
	for {
		x := &w.visits[v]
		prog := w.replicas[x.replica].component
		if w.lost(v) {
			x.failed = true
		}
		if x.failed || int(x.step) == len(prog.steps) {
			w.reply(v)
			return
		}
		i := x.step
		x.step++
		if mean := prog.steps[i].CPUMs; mean > 0 {
			work := mean * 1e6 * w.sampler.Factor(&x.draws)
			w.submit(v, work)
			return
		}
		if w.call(v, prog, i) {
			return
		}
	}
}

// call makes the calls of step i; false when chance decided against them.
func (w *world) call(v int32, prog *component, i int32) bool {
	x := &w.visits[v]
	if !w.sampler.Happens(&x.draws, prog.steps[i].Probability) {
		return false
	}
	if odds := prog.odds[i]; odds != nil {
		k := w.sampler.Choose(&x.draws, odds)
		w.callOne(v, prog.calls[i][k], i, 0)
		return true
	}
	for n, to := range prog.calls[i] {
		w.callOne(v, to, i, n)
	}
	return true
}

// callOne sends the n-th request of a step from visit v's replica to a component.
func (w *world) callOne(v, to, step int32, n int) {
	w.visits[v].pending++
	c := heldCall{visit: v, step: step, n: n}
	if w.scaled.limited(to) {
		w.scaled.hold(w, c)
		w.scaled.release(w)
		return
	}
	w.dispatch(c, w.router.pick(w.visits[v].replica, to))
}

// dispatch sends a call to the replica that was picked for it. Where there is
// none, the caller's proxy answers that.
func (w *world) dispatch(c heldCall, p pick) {
	child := w.newVisit()
	x := &w.visits[c.visit]
	w.visits[child] = visit{
		parent: c.visit, request: none, replica: p.replica, caller: x.replica, picked: p,
		draws: x.draws.Child(int(p.to), int(c.step), c.n),
	}
	if p.replica == none {
		w.visits[child].failed = true
		w.events.push(w.now, answer, child, 0)
		return
	}
	if q := w.pod(p.replica); q != nil {
		w.visits[child].life = q.life
		q.load(w.now, 1)
	}
	w.events.push(w.arrival(x.replica, p.replica, x.replica), arrive, child, 0)
}

// pod of a replica; nil where its component is not scaled.
func (w *world) pod(replica int32) *pod {
	if w.scaled == nil {
		return nil
	}
	return w.scaled.pods[replica]
}

// lost says whether the container that a visit was sent to is gone, or cannot
// bear one more request.
func (w *world) lost(v int32) bool {
	x := &w.visits[v]
	p := w.pod(x.replica)
	if p == nil {
		return false
	}
	if limit := w.scaled.plan.DiesAt; limit > 0 && p.running && p.life == x.life && p.active > limit {
		w.scaled.kill(w, x.replica)
	}
	return p.life != x.life
}

// fail answers a visit with an error.
func (w *world) fail(v int32) {
	w.visits[v].failed = true
	w.reply(v)
}

// reply sends the visit's answer back.
func (w *world) reply(v int32) {
	x := &w.visits[v]
	s := w.stations[x.replica]
	if !x.failed {
		s.done++
	}
	p := w.pod(x.replica)
	alive := p == nil || p.life == x.life
	if p != nil && alive {
		p.load(w.now, -1)
		if w.scaled.limited(w.replicas[x.replica].component.index) {
			defer w.scaled.release(w)
		}
	}
	if w.plan.App.Server.HoldSlot && alive {
		s.held--
		if s.queue.len() > 0 {
			s.held++
			defer w.advance(s.queue.pop())
		}
	}
	if x.caller == none {
		w.events.push(w.now+w.clientDelay(x.replica), answer, v, 0)
		return
	}
	w.router.answered(w.replicas[x.caller].component.index, w.replicas[x.replica].component.index)
	w.events.push(w.arrival(x.caller, x.replica, x.replica), answer, v, 0)
}

// answered is the arrival of a visit's answer at its caller.
func (w *world) answered(v int32) {
	x := w.visits[v]
	w.free = append(w.free, v)
	if x.parent == none {
		w.client.answered(w, x.request, x.version, x.failed)
		return
	}
	w.router.release(x.caller, x.picked)
	parent := &w.visits[x.parent]
	parent.pending--
	parent.failed = parent.failed || x.failed
	if parent.pending == 0 {
		w.advance(x.parent)
	}
}

// arrival is when a message between two replicas gets there: half a round
// trip of the caller's link plus two sidecars. from is the sender, which is
// the callee for an answer.
func (w *world) arrival(caller, callee, from int32) int64 {
	a, b := w.replicas[caller].node, w.replicas[callee].node
	at := w.now + w.oneWay[a][b] + w.sidecar[a] + w.sidecar[b]
	if w.plan.Network.Jitter == 0 {
		return at
	}
	if from == callee {
		a, b = b, a
	}
	at += int64(max(0, w.jitter.NormFloat64()*float64(w.plan.Network.Jitter)))
	at = max(at, w.lastOn[a][b])
	w.lastOn[a][b] = at
	return at
}

// clientDelay is the time of a message between the client and an entry
// replica: the client has no sidecar, and a gateway is one itself.
func (w *world) clientDelay(replica int32) int64 {
	return int64(w.plan.Entry.ClientRTT)/2 + w.sidecar[w.replicas[replica].node]
}

// choices lists a Choose in a fixed order.
func choices(choose map[string]float64) (names []string, odds []float64) {
	for _, name := range workloads.SortedNames(choose) {
		names, odds = append(names, name), append(odds, choose[name])
	}
	return names, odds
}
