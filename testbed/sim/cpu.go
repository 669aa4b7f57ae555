package sim

// submit gives a visit's CPU step to its replica's station.
func (w *world) submit(v int32, work float64) {
	i := w.visits[v].replica
	s := w.stations[i]
	work *= w.scaled.cold(w.now, i)
	w.visits[v].work = work
	if !w.plan.App.Server.HoldSlot && s.slots > 0 && len(s.jobs) >= s.slots {
		s.queue.push(v)
		return
	}
	s.settle(w.now)
	s.add(v, work)
	w.changed(i)
}

// completed ends the step that finishes first and takes the next from the
// queue.
func (w *world) completed(i int32, ver uint32) {
	s := w.stations[i]
	if ver != s.version {
		return
	}
	s.settle(w.now)
	v := s.take()
	if !w.plan.App.Server.HoldSlot && s.queue.len() > 0 {
		next := s.queue.pop()
		s.add(next, w.visits[next].work)
	}
	w.changed(i)
	w.advance(v)
}

// changed grants cores anew after the set of jobs of station i, or its right
// to run, has changed. The station must be settled.
func (w *world) changed(i int32) {
	s := w.stations[i]
	if s.quota != nil && len(s.jobs) > 0 {
		if boundary := s.quota.wake(w.now); boundary > 0 {
			w.events.push(boundary, period, i, 0)
		}
	}
	if s.node.contended {
		w.rebalance(s.node)
	}
	if !s.node.contended {
		s.granted = s.wants()
	}
	w.schedule(i)
}

// rebalance divides a contended node's cores anew; stations whose grant has
// changed are settled at the old one first.
func (w *world) rebalance(n *node) {
	want, grant := make([]float64, len(n.stations)), make([]float64, len(n.stations))
	for k, i := range n.stations {
		want[k] = w.stations[i].wants()
	}
	share(n.cores, want, grant)
	for k, i := range n.stations {
		s := w.stations[i]
		if s.granted == grant[k] {
			continue
		}
		s.settle(w.now)
		s.granted = grant[k]
		w.schedule(i)
	}
}

// schedule plans the station's next completion and, under a quota, the moment
// it runs out. What was planned before is void.
func (w *world) schedule(i int32) {
	s := w.stations[i]
	s.version++
	if len(s.jobs) == 0 || s.granted == 0 {
		return
	}
	done := s.untilDone()
	if s.quota != nil {
		if out := int64(max(0, s.quota.runtime) / s.granted); out < done {
			w.events.push(w.now+out, exhaust, i, s.version)
			return
		}
	}
	w.events.push(w.now+done, complete, i, s.version)
}

// exhausted throttles a station that has used up its quota.
func (w *world) exhausted(i int32, ver uint32) {
	s := w.stations[i]
	if ver != s.version {
		return
	}
	s.settle(w.now)
	s.quota.throttle(w.now)
	w.changed(i)
}

// periodEnds refills the station's quota.
func (w *world) periodEnds(i int32) {
	s := w.stations[i]
	s.settle(w.now)
	next, _ := s.quota.tick(w.now, s.granted > 0 && len(s.jobs) > 0)
	if next > 0 {
		w.events.push(next, period, i, 0)
	}
	w.changed(i)
}
