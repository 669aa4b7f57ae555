package sim

// eventKind says what an event means; idx names whom it concerns.
type eventKind uint8

const (
	arrive      eventKind = iota // visit idx reaches its replica
	answer                       // the answer of visit idx reaches its caller
	complete                     // station idx finishes its next step, if ver still holds
	exhaust                      // station idx has used up its quota, if ver still holds
	period                       // the CFS period of station idx ends
	send                         // the client's connection idx (or the open schedule) sends
	expire                       // the client gives up request idx, if ver still holds
	scrape                       // counters of all replicas are read
	controlStep                  // the controller's cycle
	window                       // a utilisation window ends
	antagonise                   // antagonist source idx starts or ends a burst
	phase                        // warm-up, gap or measurement begins or ends
	scale                        // the scaler acts
	podTurn                      // the container of replica idx starts or is ready, if ver still holds
	endpoints                    // the controller hears of other ready pods
)

type event struct {
	at   int64 // ns of virtual time
	seq  uint64
	idx  int32
	ver  uint32
	kind eventKind
}

// before orders events by time; events of the same moment keep the order in
// which they were scheduled, without which a run would not be repeatable.
func (e event) before(o event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// eventQueue is a 4-ary heap: fewer levels than a binary one, and the four
// children share a cache line or two.
type eventQueue struct {
	heap []event
	seq  uint64
}

func (q *eventQueue) push(at int64, kind eventKind, idx int32, ver uint32) {
	q.seq++
	e := event{at: at, seq: q.seq, idx: idx, ver: ver, kind: kind}
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
}

func (q *eventQueue) pop() (event, bool) {
	if len(q.heap) == 0 {
		return event{}, false
	}
	top := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(e)
	}
	return top, true
}

// sink places e, starting from the root's hole.
func (q *eventQueue) sink(e event) {
	h := q.heap
	i := 0
	for {
		child := 4*i + 1
		if child >= len(h) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(e) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = e
}
