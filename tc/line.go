package tc

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"
)

// line is one direction of a link: it says when each of its packets is due.
// All times are since the shaper's start.
type line struct {
	delay, jitter time.Duration
	loss, bits    float64 // bits per second, 0 = no limit

	rng  *rand.Rand
	free time.Duration // when the last packet is on the wire, with a rate
	last time.Duration // when the last packet is due

	released uint32 // number of the packet that left last
}

// lineBuffer is how long a packet may wait for a line's rate before it is
// dropped, a common size for the buffer before a bottleneck.
const lineBuffer = 100 * time.Millisecond

// newLine makes the line from peer. Its draws depend on seed and peer only.
func newLine(peer netip.Addr, seed uint64) *line {
	h := fnv.New64a()
	h.Write(peer.AsSlice())
	return &line{rng: rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// set takes over the properties of the link; delay is what this direction adds.
func (l *line) set(link Link, delay time.Duration) {
	l.delay, l.jitter, l.loss, l.bits = delay, link.Jitter, link.Loss, link.RateBits
}

// fate is what becomes of a packet.
type fate int

const (
	kept      fate = iota
	lost           // by Link.Loss
	overflown      // no room in the buffer before Link.RateBits
)

// next says when a packet of so many bytes that arrives at now is due. Jitter
// only adds, and half of the packets have none: what the simulator adds to a
// message. A packet never overtakes an earlier one of its line.
func (l *line) next(now time.Duration, bytes int) (due time.Duration, f fate) {
	if l.loss > 0 && l.rng.Float64() < l.loss {
		return 0, lost
	}
	due = now
	if l.bits > 0 {
		if l.free-now > lineBuffer {
			return 0, overflown
		}
		l.free = max(l.free, now) + time.Duration(8*float64(bytes)/l.bits*float64(time.Second))
		due = l.free
	}
	due += l.delay
	if l.jitter > 0 {
		due += time.Duration(max(0, l.rng.NormFloat64()*float64(l.jitter)))
	}
	l.last = max(l.last, due)
	return l.last, kept
}

// packet waits for its time.
type packet struct {
	id  uint32 // the kernel's number, rising with arrival
	due time.Duration
	of  *line
}

// before orders packets by time; those due together leave as they came.
func (p packet) before(q packet) bool {
	return p.due < q.due || p.due == q.due && int32(p.id-q.id) < 0
}

// waiting is a heap of packets, the next one due first.
type waiting []packet

func (w *waiting) push(p packet) {
	h := append(*w, p)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	*w = h
}

// pop takes the first packet out of a heap that is not empty.
func (w *waiting) pop() packet {
	h := *w
	first, end := h[0], len(h)-1
	h[0] = h[end]
	h = h[:end]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < end && h[child+1].before(h[child]) {
			child++
		}
		if child >= end || !h[child].before(h[i]) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*w = h
	return first
}
