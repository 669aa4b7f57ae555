package sim

import "math"

// job is a visit's CPU step in service: it completes when the station's
// attained service reaches finish.
type job struct {
	finish float64
	seq    uint64
	visit  int32
}

// station is a replica's CPU: up to slots jobs in service share the granted
// cores equally, the rest wait in order of arrival. One slot is an event loop
// (FIFO), no limit is processor sharing.
//
// attained is the service each job in service has got since the station was
// last empty, in ns of work on a node of slowness 1. Because all jobs progress
// alike, one number and a heap of finish marks replace a clock for each job.
type station struct {
	node    *node
	slots   int
	threads float64
	quota   *bandwidth // nil = no limit

	queue    fifo  // waiting for a slot
	held     int   // slots held, where a server keeps them during its calls
	jobs     []job // heap by finish, then seq
	seq      uint64
	attained float64
	updated  int64   // time attained and cpu were brought up to
	granted  float64 // cores it runs on now
	version  uint32  // of the scheduled completion and exhaustion
	cpu      float64 // ns of CPU time used
	done     int64   // requests answered
}

// node shares its cores among its stations.
type node struct {
	cores    float64 // less what an antagonist takes
	slowness float64
	inflate  float64 // >= 1 while an antagonist contends for caches
	stations []int32
	// contended is false where the stations cannot ask for more than the
	// cores there are: then a change at one station concerns no other.
	contended bool
}

// speed is the work done by a core of the node in a ns, in ns of work on a
// node of slowness 1.
func (n *node) speed() float64 { return 1 / (n.slowness * n.inflate) }

// settle brings the station's counters up to now.
func (s *station) settle(now int64) {
	dt := float64(now - s.updated)
	s.updated = now
	if dt == 0 || s.granted == 0 || len(s.jobs) == 0 {
		return
	}
	used := s.granted * dt
	s.cpu += used
	s.attained += used * s.node.speed() / float64(len(s.jobs))
	if s.quota != nil {
		s.quota.runtime -= used
	}
}

// wants is how many cores the station could use now.
func (s *station) wants() float64 {
	if s.quota != nil && s.quota.throttled {
		return 0
	}
	return min(float64(len(s.jobs)), s.threads)
}

// add puts a visit's step into service. The station must be settled.
func (s *station) add(visit int32, work float64) {
	if len(s.jobs) == 0 {
		s.attained = 0 // keeps the numbers small, so that no precision is lost
	}
	s.seq++
	s.jobs = append(s.jobs, job{finish: s.attained + work, seq: s.seq, visit: visit})
	s.up(len(s.jobs) - 1)
}

// take removes the job that finishes first.
func (s *station) take() int32 {
	top := s.jobs[0]
	last := len(s.jobs) - 1
	s.jobs[0] = s.jobs[last]
	s.jobs = s.jobs[:last]
	s.down()
	return top.visit
}

func (s *station) less(i, j int) bool {
	a, b := &s.jobs[i], &s.jobs[j]
	return a.finish < b.finish || a.finish == b.finish && a.seq < b.seq
}

func (s *station) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.less(i, parent) {
			return
		}
		s.jobs[i], s.jobs[parent] = s.jobs[parent], s.jobs[i]
		i = parent
	}
}

func (s *station) down() {
	i := 0
	for {
		c := 2*i + 1
		if c >= len(s.jobs) {
			return
		}
		if c+1 < len(s.jobs) && s.less(c+1, c) {
			c++
		}
		if !s.less(c, i) {
			return
		}
		s.jobs[i], s.jobs[c] = s.jobs[c], s.jobs[i]
		i = c
	}
}

// untilDone is the time in ns until the next job completes at the present
// rate.
func (s *station) untilDone() int64 {
	left := max(0, s.jobs[0].finish-s.attained)
	return int64(math.Ceil(left * float64(len(s.jobs)) / (s.granted * s.node.speed())))
}

// share divides the node's cores among its stations by max-min fairness, the
// outcome of equal cgroup weights: nobody gets more than it wants, and what
// one leaves is divided among the others. want and grant run parallel.
func share(cores float64, want, grant []float64) {
	left, open := cores, 0
	for i, w := range want {
		grant[i] = 0
		if w > 0 {
			open++
		}
	}
	for open > 0 && left > 1e-12 {
		level, satisfied := left/float64(open), false
		for i, w := range want {
			if need := w - grant[i]; need > 0 && need <= level {
				grant[i] = w
				left -= need
				open--
				satisfied = true
			}
		}
		if satisfied {
			continue
		}
		for i, w := range want {
			if w-grant[i] > 0 {
				grant[i] += level
			}
		}
		return
	}
}

// fifo is a queue of visits that reuses its room.
type fifo struct {
	items []int32
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(v int32) { f.items = append(f.items, v) }

func (f *fifo) pop() int32 {
	v := f.items[f.head]
	f.head++
	if f.head > 64 && f.head*2 > len(f.items) {
		f.items = append(f.items[:0], f.items[f.head:]...)
		f.head = 0
	}
	return v
}
