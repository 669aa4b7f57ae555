package sim

import "time"

// pod is a replica of the scaled component as Kubernetes runs it: created,
// started, ready; killed and started again; deleted. A replica of the plan is
// a place for one pod after the other. Other replicas have no pod.
type pod struct {
	id       int
	exists   bool
	pending  bool // no container has been started yet
	running  bool
	ready    bool
	created  int64
	started  int64 // of the running container
	changed  int64 // when ready last changed
	restarts int
	cpuBase  float64 // the station's CPU time when the container started
	life     uint32  // of the container: what it was doing ends with it
	version  uint32  // of the next event planned for it

	active int // requests sent to it and not answered
	area   float64
	marked int64 // until when area, the integral of active, is known
}

// Kubernetes' rhythm in the life of a pod.
const (
	podPending  = time.Second       // until the container starts; the rest of the start is the program's
	backOff     = 10 * time.Second  // before the second restart, doubled from one to the next
	backOffMost = 300 * time.Second // the first restart comes at once
	standing    = time.Hour         // age of the pods that are there at the start
	// endpointDelay is from a change of the ready pods until the controller's
	// step that it calls for: EndpointSlices are changed at most once a second.
	endpointDelay = time.Second
)

// load adds to the requests in flight at the pod.
func (p *pod) load(now int64, n int) {
	p.area += float64(p.active) * float64(now-p.marked)
	p.marked = now
	p.active += n
}

// setReady is a change of the pod's readiness.
func (p *pod) setReady(now int64, ready bool) {
	p.ready, p.changed = ready, now
}

// start runs a fresh container in the pod.
func (p *pod) start(now int64, cpu float64) {
	p.pending, p.running = false, true
	p.started, p.cpuBase = now, cpu
}

// wait is how long the pod's next container is held back.
func (p *pod) wait() time.Duration {
	if p.restarts <= 1 {
		return 0
	}
	return min(backOff<<min(p.restarts-2, 10), backOffMost)
}
