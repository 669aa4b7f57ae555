package workloads

import (
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals yields the due times of an open schedule: requests leave when due,
// whatever is outstanding. Even arrivals are 1/rate apart, Poisson arrivals
// exponentially so; under a profile both follow the integral of the rate.
type Arrivals struct {
	poisson bool
	profile []RatePoint
	rps     float64
	rng     *rand.Rand
	now     float64 // seconds
	point   int
}

// NewArrivals starts an open schedule of rps requests a second. rng is used
// by Poisson arrivals only.
func NewArrivals(l Load, rps float64, rng *rand.Rand) *Arrivals {
	return &Arrivals{poisson: l.Arrivals == "poisson", profile: l.profile(), rps: rps, rng: rng}
}

// farthest bounds times and intervals, so that sums of two do not overflow.
const farthest = time.Duration(math.MaxInt64 / 4) // 73 years

// Next returns the next due time since the start; false when the profile has
// ended at rate zero or the rate is so low that no Duration reaches it.
func (a *Arrivals) Next() (time.Duration, bool) {
	mass := 1.0
	if a.poisson {
		mass = a.rng.ExpFloat64()
	}
	for {
		rate, end := a.segment()
		if dt := mass / rate; a.now+dt <= end && rate > 0 {
			a.now += dt
			return time.Duration(math.Round(a.now * 1e9)), a.now < farthest.Seconds()
		}
		if math.IsInf(end, 1) {
			return 0, false
		}
		mass -= rate * (end - a.now)
		a.now = end
		a.point++
	}
}

// segment is the rate that holds now and the second at which it ends.
func (a *Arrivals) segment() (rate, end float64) {
	p := a.profile
	if len(p) == 0 {
		return a.rps, math.Inf(1)
	}
	end = math.Inf(1)
	if a.point+1 < len(p) {
		end = p[a.point+1].At.Seconds()
	}
	return a.rps * p[a.point].Factor, end
}

// Connection paces one connection as wrk2 (commit 44a94c1) does: it has one
// request outstanding; request k is due at start + k x interval and its
// latency counts from there; behind its pace it sends as soon as it is free,
// but at most at twice the pace counted from the last request that left on
// time; timers have a resolution of one millisecond.
type Connection struct {
	start, interval time.Duration
	done            int64         // requests completed
	onPaceAt        time.Duration // when the last request left that was not behind
	onPaceDone      int64         // requests completed by then
}

// NewConnections starts a wrk2 schedule of rps requests a second. It deals the
// load's connections to its threads as wrk2 does: the
// remainder of the integer division is dropped, each thread offers an equal
// part of rps, connection i of a thread starts i x Stagger late.
func NewConnections(l Load, rps float64) []*Connection {
	each := l.Connections / l.Threads
	ns := float64(time.Second) * float64(l.Threads*each) / rps
	interval := max(1, time.Duration(min(ns, float64(farthest))))
	var conns []*Connection
	for range l.Threads {
		for i := range each {
			conns = append(conns, &Connection{start: time.Duration(i) * l.Stagger.Std(), interval: interval})
		}
	}
	return conns
}

// Due is when the connection's next request is due, since the start.
func (c *Connection) Due() time.Duration {
	return c.start + time.Duration(c.done)*c.interval
}

// DueBefore counts the requests that are due before t.
func (c *Connection) DueBefore(t time.Duration) int64 {
	if t <= c.start {
		return 0
	}
	return int64((t - c.start + c.interval - 1) / c.interval)
}

// SendAt is when the next request leaves if the connection is free at now.
//
// wrk2 asks again when a timer fires, which is never before the due time, and
// from then on counts as behind. So the double pace starts where the single one
// does and gathers during a stall, too: it limits next to nothing, and what a
// stall held up follows as fast as the server answers.
func (c *Connection) SendAt(now time.Duration) time.Duration {
	if c.done == 0 { // the connection opens at its start and sends at once
		c.onPaceAt = max(now, c.start)
		return c.onPaceAt
	}
	if due := c.Due(); due > now {
		c.onPaceAt, c.onPaceDone = timer(now, due), c.done
		return c.onPaceAt
	}
	at := c.onPaceAt + time.Duration(c.done-c.onPaceDone)*c.interval/2
	if at <= now {
		return now
	}
	return timer(now, at)
}

// timer is when a timer fires that is set now for a later time.
func timer(now, at time.Duration) time.Duration {
	return now + (at - now).Truncate(time.Millisecond) + time.Millisecond
}

// Done books the answer of the outstanding request.
func (c *Connection) Done() { c.done++ }
