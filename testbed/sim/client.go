package sim

import (
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"heartbed/testbed"
	"heartbed/workloads"
)

// drainLimit is how long an open schedule waits after its end for answers
// when there is no client timeout.
const drainLimit = 60 * time.Second

// request is one request of the client. Requests are reused; version tells a
// late timeout from the present use.
type request struct {
	due, sent int64
	conn      int32
	version   uint32
	live      bool
}

// client is the load generator: a warm-up run, a gap, then the measured run,
// each a fresh start of the schedule as with a real generator.
type client struct {
	plan       testbed.Plan
	warming    bool
	draining   bool
	over       bool
	run        uint64 // its number, for the draws of its requests
	generation uint32 // of the run; sends and requests of an earlier one are void
	began      int64  // start of this run
	from, to   int64  // requests due in [from, to) are measured

	conns    []*workloads.Connection
	entry    []int32 // replica that each connection reaches
	arrivals *workloads.Arrivals
	nextDue  int64
	rng      *rand.Rand
	serial   uint64 // requests sent in this run, the seed of each one's draws

	requests    []request
	free        []int32
	outstanding int64
	marked      int64
	area        float64 // integral of outstanding over the measured time
	occupied    float64 // sum of the times that each request was outstanding in it, ns
	latencies   float64 // sum of measured latencies, ns
	windowFrom  int64
	windowEnd   int64
	windowCPU   []float64
	measured    testbed.Measurement
}

func newClient(p testbed.Plan) client {
	return client{
		plan: p,
		rng:  rand.New(rand.NewPCG(p.Seed, arrivalStream)),
		measured: testbed.Measurement{
			Latency: hdrhistogram.New(1, time.Hour.Microseconds(), 3),
		},
	}
}

// start begins the warm-up, or the measured run where there is none.
func (c *client) start(w *world) {
	if warm := int64(c.plan.Timing.Warmup); warm > 0 {
		c.warming = true
		c.from, c.to = w.now+warm, w.now+warm
		c.run = workloads.WarmupRun
		c.begin(w, warm)
		return
	}
	c.measure(w)
}

// endPhase is the end of the warm-up, of the gap, of the measured run or of
// the drain.
func (c *client) endPhase(w *world) {
	switch {
	case c.warming && c.conns == nil && c.arrivals == nil: // the gap is over
		c.warming = false
		c.measure(w)
	case c.warming:
		c.abandon(w)
		w.events.push(w.now+int64(c.plan.Timing.Gap), phase, 0, 0)
	case c.draining || c.plan.Load.Schedule == "wrk2" || c.outstanding == 0:
		c.finish(w)
	default:
		c.tally(w.now)
		c.draining = true
		limit := int64(drainLimit)
		if t := int64(c.plan.Load.Timeout); t > 0 {
			limit = t
		}
		w.events.push(w.now+limit, phase, 0, 0)
	}
}

func (c *client) measure(w *world) {
	length := int64(c.plan.Timing.Duration)
	c.from, c.to = w.now+int64(c.plan.Timing.Drop), w.now+length
	c.marked = c.from
	c.run = workloads.MeasuredRun(c.plan.Timing.Warmup > 0)
	clear(w.router.seen)
	c.begin(w, length)
	w.events.push(c.from, window, 0, 0)
}

// begin starts the schedule afresh for the given length.
func (c *client) begin(w *world, length int64) {
	c.generation++
	c.began = w.now
	c.serial = 0
	w.events.push(w.now+length, phase, 0, 0)
	if c.plan.Load.Schedule == "open" {
		c.arrivals = workloads.NewArrivals(c.plan.Load, c.plan.RPS, c.rng)
		c.scheduleArrival(w)
		return
	}
	c.conns = workloads.NewConnections(c.plan.Load, c.plan.RPS)
	c.entry = make([]int32, len(c.conns))
	for i := range c.conns {
		c.entry[i] = w.entryReplica(c.rng)
		c.scheduleSend(w, int32(i))
	}
}

// abandon ends a run: what is outstanding goes on in the system, but nobody
// waits for it.
func (c *client) abandon(w *world) {
	c.tally(w.now)
	for i := range c.requests {
		if c.requests[i].live {
			c.requests[i].live = false
			c.requests[i].version++
		}
	}
	c.outstanding = 0
	c.generation++
	c.conns, c.arrivals = nil, nil
}

func (c *client) scheduleArrival(w *world) {
	due, more := c.arrivals.Next()
	if !more || c.began+int64(due) >= c.to && !c.warming {
		return
	}
	c.nextDue = c.began + int64(due)
	w.events.push(c.nextDue, send, none, c.generation)
}

func (c *client) scheduleSend(w *world, i int32) {
	at := c.began + int64(c.conns[i].SendAt(time.Duration(w.now-c.began)))
	w.events.push(at, send, i, c.generation)
}

// send lets a request leave: the next of the open schedule (conn = none) or
// of a wrk2 connection.
func (c *client) send(w *world, conn int32, generation uint32) {
	if generation != c.generation || !c.warming && w.now >= c.to {
		return
	}
	var due int64
	var to int32
	if conn == none {
		due, to = c.nextDue, w.entryReplica(c.rng)
		c.scheduleArrival(w)
	} else {
		due, to = c.began+int64(c.conns[conn].Due()), c.entry[conn]
	}
	r := c.newRequest()
	c.tally(w.now)
	c.outstanding++
	c.requests[r] = request{due: due, sent: w.now, conn: conn, version: c.requests[r].version + 1, live: true}
	if t := int64(c.plan.Load.Timeout); t > 0 {
		w.events.push(max(w.now, due+t), expire, r, c.requests[r].version)
	}
	c.serial++
	v := w.newVisit()
	w.visits[v] = visit{
		parent: none, request: r, replica: to, caller: none,
		draws: workloads.RequestDraws(c.plan.Seed, c.run, c.serial),
	}
	w.visits[v].version = c.requests[r].version
	w.events.push(w.now+w.clientDelay(to), arrive, v, 0)
}

func (c *client) newRequest() int32 {
	if n := len(c.free); n > 0 {
		r := c.free[n-1]
		c.free = c.free[:n-1]
		return r
	}
	c.requests = append(c.requests, request{})
	return int32(len(c.requests) - 1)
}

// answered is the arrival of an answer at the client.
func (c *client) answered(w *world, r int32, version uint32, failed bool) {
	x := c.requests[r]
	c.free = append(c.free, r)
	if !x.live || x.version != version {
		return // nobody waits for it any more
	}
	c.leave(w, r)
	switch measured := x.due >= c.from && x.due < c.to; {
	case measured && failed:
		c.measured.Failed++
	case measured:
		c.measured.Answered++
		c.latencies += float64(w.now - x.due)
		if c.measured.Latency.RecordValue((w.now-x.due)/1000) != nil {
			c.measured.OverRange++
		}
	}
	c.next(w, x.conn)
}

// expire gives a request up.
func (c *client) expire(w *world, r int32, version uint32) {
	x := c.requests[r]
	if !x.live || x.version != version {
		return
	}
	c.leave(w, r)
	if x.due >= c.from && x.due < c.to {
		c.measured.TimedOut++
	}
	c.next(w, x.conn)
}

func (c *client) leave(w *world, r int32) {
	c.tally(w.now)
	c.outstanding--
	c.occupy(c.requests[r].sent, w.now)
	c.requests[r].live = false
}

// occupy adds the part of [sent, now) that lies in the measured time.
func (c *client) occupy(sent, now int64) {
	if from, to := max(sent, c.from), min(now, c.to); to > from {
		c.occupied += float64(to - from)
	}
}

// next frees a connection for its next request and ends a drain that has
// nothing left to wait for.
func (c *client) next(w *world, conn int32) {
	if conn != none {
		c.conns[conn].Done()
		c.scheduleSend(w, conn)
	}
	if c.draining && c.outstanding == 0 {
		c.finish(w)
	}
}

// tally brings the integral of outstanding requests up to now.
func (c *client) tally(now int64) {
	if end := min(now, c.to); end > c.marked && c.marked >= c.from {
		c.area += float64(c.outstanding) * float64(end-c.marked)
		c.marked = end
	}
}

// finish ends the measured run and counts what was cut off or never sent.
func (c *client) finish(w *world) {
	c.tally(w.now)
	if c.windowEnd == w.now { // this event came before the window's of the same moment
		c.endWindow(w)
	}
	m := &c.measured
	for _, x := range c.requests {
		if !x.live {
			continue
		}
		c.occupy(x.sent, w.now)
		if x.due >= c.from && x.due < c.to {
			m.CutOff++
		}
	}
	m.Offered = m.Answered + m.Failed + m.TimedOut + m.CutOff
	if c.conns != nil {
		due := int64(0)
		for _, conn := range c.conns {
			due += conn.DueBefore(time.Duration(c.to-c.began)) - conn.DueBefore(time.Duration(c.from-c.began))
		}
		m.Unsent = due - m.Offered
		m.Offered = due
	}
	c.over = true
}

// entryReplica is where a client connection ends: the gateway, or a replica
// of the entry component at random as kube-proxy picks it.
func (w *world) entryReplica(rng *rand.Rand) int32 {
	if len(w.entries) == 1 {
		return w.entries[0]
	}
	return w.entries[rng.IntN(len(w.entries))]
}
