package sim

// limited says whether calls of a component go through Knative's activator: it
// knows how many requests each pod may have and keeps the others back. With
// 211 requests of burst capacity asked for and some fourteen a pod, it is in
// the path at all sizes that occur here.
func (a *autoscaler) limited(to int32) bool {
	return a != nil && a.plan.Scaler.Limit > 0 && to == a.callee
}

// queue brings the integral of held requests up to now.
func (a *autoscaler) queue(now int64) {
	a.area += float64(len(a.held)) * float64(now-a.marked)
	a.marked = now
}

// hold keeps a call back.
func (a *autoscaler) hold(w *world, c heldCall) {
	a.queue(w.now)
	a.held = append(a.held, c)
}

// release sends the held calls, oldest first, while a pod has room.
func (a *autoscaler) release(w *world) {
	sent := 0
	for sent < len(a.held) {
		to := a.roomiest()
		if to == none {
			break
		}
		if sent == 0 {
			a.queue(w.now)
		}
		c := a.held[sent]
		sent++
		w.dispatch(c, pick{replica: to, thread: none, to: a.callee})
	}
	a.held = append(a.held[:0], a.held[sent:]...)
}

// roomiest is the ready pod with the fewest requests; none = all are full.
func (a *autoscaler) roomiest() int32 {
	best := none
	for _, i := range a.places {
		if p := a.pods[i]; p.ready && p.active < a.plan.Scaler.Limit && (best == none || p.active < a.pods[best].active) {
			best = i
		}
	}
	return best
}
