package sim

import (
	"time"

	"heartbed/testbed"
	"heartbed/workloads"
)

// defaultPeriod is the kernel's cpu.cfs_period_us.
const defaultPeriod = 100 * time.Millisecond

// bandwidth is the CFS bandwidth control of one cgroup as the Linux kernel
// does it (kernel/sched/fair.c): at each period boundary the runtime grows by
// the quota up to quota + burst; a group that has none left is throttled until
// the next boundary; a group that was idle for a whole period stops its timer
// and, when it runs again, goes on with the runtime it had, its boundaries
// still in phase. Not modelled: the 5 ms slices that each CPU takes from the
// pool, which matter for groups with several threads only.
type bandwidth struct {
	quota, burst float64 // ns of CPU time
	period       int64   // ns
	runtime      float64 // ns left in this period
	boundary     int64   // the next boundary, while ticking
	ticking      bool
	idle         bool // nothing ran since the last boundary
	throttled    bool
	since        int64 // start of the throttling
	stats        testbed.Throttling
}

// newBandwidth is the quota of a server; nil where it has none. phase places
// the first period boundary: real groups do not tick together.
func newBandwidth(server workloads.Server, phase uint64) *bandwidth {
	if server.LimitCores == 0 {
		return nil
	}
	length := int64(server.Period)
	if length == 0 {
		length = int64(defaultPeriod)
	}
	quota := server.LimitCores * float64(length)
	return &bandwidth{
		quota: quota, burst: float64(server.Burst), period: length, runtime: quota,
		boundary: int64(phase % uint64(length)),
	}
}

// wake restarts the period timer when the group begins to run. It returns the
// time of the boundary to schedule, or 0 when the timer is running.
func (b *bandwidth) wake(now int64) int64 {
	b.idle = false
	if b.ticking {
		return 0
	}
	b.ticking = true
	if now >= b.boundary {
		b.boundary += (now - b.boundary + b.period) / b.period * b.period
	}
	return b.boundary
}

// tick is a period boundary. It returns the next one, or 0 when the timer
// stops, and whether the group was released from throttling.
func (b *bandwidth) tick(now int64, running bool) (next int64, released bool) {
	b.stats.Periods++
	b.runtime = min(b.runtime+b.quota, b.quota+b.burst)
	if b.throttled {
		b.stats.Throttled++
		b.release(now)
		released = true
	}
	if b.idle && !running && !released {
		b.ticking = false
		return 0, false
	}
	b.idle = true
	b.boundary = now + b.period
	return b.boundary, released
}

func (b *bandwidth) throttle(now int64) {
	b.throttled, b.since = true, now
	b.runtime = 0
}

func (b *bandwidth) release(now int64) {
	b.throttled = false
	b.stats.ThrottledTime += timeOf(now - b.since)
}
