package loadgen

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// fate is how a request ended.
type fate int

const (
	fateAnswered fate = iota
	fateConnect
	fateWrite
	fateRead
	fateStatus
	fateTimedOut
	fates
)

var fateNames = [fates]string{"answered", "connect", "write", "read", "status", "timed out"}

// recorder counts requests. Those due in [from, to) make the result; all make
// the progress.
type recorder struct {
	from, to time.Duration
	latency  *hdrhistogram.Histogram
	lateness *hdrhistogram.Histogram

	offered, cut int64
	measured     [fates]int64
	overRange    int64
	latencies    time.Duration // sum of the measured ones
	faults       [fates]error  // the first of each kind

	sent, outstanding int64 // of the whole run
	all               [fates]int64
	bytes             int64
	opened            int // connections open at once at most
	perSecond         []int64

	// For Little's law, over [from, to), kept in two ways.
	area     float64       // integral of outstanding, ns
	marked   time.Duration // it reaches to here
	occupied time.Duration // sum of the times that each request was outstanding

	reported, reportedAt int64 // state of the last progress: answers, ns
}

// longest is what a histogram of µs reaches.
const longest = time.Hour

func newRecorder(c Config) recorder {
	return recorder{
		from: c.Drop, to: c.Duration,
		latency:  hdrhistogram.New(1, longest.Microseconds(), 3),
		lateness: hdrhistogram.New(1, longest.Microseconds(), 3),
	}
}

// counts says whether a request that is due then is measured.
func (r *recorder) counts(due time.Duration) bool { return due >= r.from && due < r.to }

// offer counts a request of a schedule that is not known in advance.
func (r *recorder) offer(due time.Duration) {
	if r.counts(due) {
		r.offered++
	}
}

func (r *recorder) left(now time.Duration) {
	r.tally(now)
	r.sent++
	r.outstanding++
}

// tally brings the integral of outstanding requests up to now.
func (r *recorder) tally(now time.Duration) {
	if from, to := max(r.marked, r.from), min(now, r.to); to > from {
		r.area += float64(r.outstanding) * float64(to-from)
	}
	r.marked = max(r.marked, now)
}

// late books the generator's own delay of a request.
func (r *recorder) late(due, by time.Duration) {
	if r.counts(due) {
		// Beyond the range means an hour late, and that counts as an hour.
		_ = r.lateness.RecordValue(min(max(by, 0), longest).Microseconds())
	}
}

// end books the end of a request; one that never left has sent = 0 and was
// outstanding at no time.
func (r *recorder) end(q request, now time.Duration, f fate, fault error) {
	r.all[f]++
	if q.sent > 0 {
		r.tally(now)
		r.outstanding--
		r.occupy(q.sent, now)
	}
	if f == fateAnswered {
		second := int(now / time.Second)
		for len(r.perSecond) <= second {
			r.perSecond = append(r.perSecond, 0)
		}
		r.perSecond[second]++
	}
	if !r.counts(q.due) {
		return
	}
	r.measured[f]++
	if fault != nil && r.faults[f] == nil {
		r.faults[f] = fault
	}
	if f == fateAnswered {
		r.latencies += now - q.due
		if r.latency.RecordValue((now - q.due).Microseconds()) != nil {
			r.overRange++
		}
	}
}

// cutOff books a request that is outstanding at the end.
func (r *recorder) cutOff(q request, now time.Duration) {
	r.tally(now)
	r.outstanding--
	r.occupy(q.sent, now)
	if r.counts(q.due) {
		r.cut++
	}
}

// occupy adds the part of [sent, now) that lies in the measured time.
func (r *recorder) occupy(sent, now time.Duration) {
	if from, to := max(sent, r.from), min(now, r.to); to > from {
		r.occupied += to - from
	}
}

// result sums up a run whose schedule ended at to.
func (r *recorder) result(to time.Duration) Result {
	m := r.measured
	e := Errors{Connect: m[fateConnect], Write: m[fateWrite], Read: m[fateRead], Status: m[fateStatus]}
	out := Result{
		Latency: r.latency, Lateness: r.lateness, OverRange: r.overRange,
		Offered: r.offered, Answered: m[fateAnswered], Failed: e.Connect + e.Write + e.Read + e.Status,
		TimedOut: m[fateTimedOut], CutOff: r.cut, Errors: e,
		Duration: to, Measured: max(0, to-r.from),
		Requests: r.all[fateAnswered] + r.all[fateStatus], Bytes: r.bytes, Connections: r.opened, PerSecond: r.perSecond,
	}
	out.Unsent = out.Offered - out.Answered - out.Failed - out.TimedOut - out.CutOff
	for f, fault := range r.faults {
		if fault != nil {
			out.Faults = append(out.Faults, fmt.Sprintf("%s: %d, the first: %v", fateNames[f], m[f], fault))
		}
	}
	if out.Answered > 0 {
		out.LatencyMeanUs = float64(r.latencies) / float64(out.Answered) / 1e3
	}
	if seconds := out.Measured.Seconds(); seconds > 0 {
		out.OfferedRPS, out.AchievedRPS = float64(out.Offered)/seconds, float64(out.Answered)/seconds
		out.OutstandingMean = r.area / 1e9 / seconds
		out.OccupiedMean = r.occupied.Seconds() / seconds
	}
	return out
}

func (r *recorder) progress(now time.Duration) Progress {
	done := r.all[fateAnswered]
	p := Progress{
		Elapsed: now, Duration: r.to, Sent: r.sent, Answered: r.measured[fateAnswered],
		Failed:   r.all[fateConnect] + r.all[fateWrite] + r.all[fateRead] + r.all[fateStatus],
		TimedOut: r.all[fateTimedOut], Outstanding: r.outstanding,
		P50: time.Duration(r.latency.ValueAtQuantile(50)) * time.Microsecond,
		P99: time.Duration(r.latency.ValueAtQuantile(99)) * time.Microsecond,
	}
	if since := int64(now) - r.reportedAt; since > 0 {
		p.RPS = float64(done-r.reported) / time.Duration(since).Seconds()
	}
	r.reported, r.reportedAt = done, int64(now)
	return p
}
