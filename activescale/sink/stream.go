package sink

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"

	"heartbed/activescale/store"
)

// stream joins the messages of one stream to flushes and puts each into the
// store: when nothing has followed for a while, or the next begins.
//
// While the store is slow the stream's next message waits, and so does its
// client by flow control: nothing piles up here.
type stream struct {
	server *Server
	pod    store.Pod
	node   string // the beginning of its id, as the client gave it
	peer   string // the client's address
	since  time.Time
	// captured says that the proxy gets its connections by interception, see
	// tally.connections.
	captured bool

	mu    sync.Mutex // of what follows; held while the store is asked
	timer *time.Timer
	over  bool
	epoch uint64 // 0 = the store has not been able to say
	puts  uint64
	pace  pace
	flush flush

	facts facts
}

// flush is the one that is being received, or was last.
type flush struct {
	tally
	millis   int64     // the sender's timestamp; 0 = none
	arrived  time.Time // its last message
	interval time.Duration
	pending  bool // there is something that the store has not got
}

// facts are what a stream shows of itself, readable without waiting for it.
type facts struct {
	flushes    atomic.Uint64
	last       atomic.Int64 // when the last flush began, Unix nanoseconds
	epoch      atomic.Uint64
	requests   atomic.Bool // a gauge of requests was among the metrics
	onlyOthers atomic.Bool // only those of the proxy's own listeners were
	bad        atomic.Bool // the last flush had a value that cannot be
}

func newStream(ctx context.Context, s *Server, pod store.Pod, node *core.Node) *stream {
	st := &stream{
		server: s, pod: pod, node: beginning(node.GetId()), since: time.Now(), captured: intercepts(node), pace: pace{every: s.opts.Every},
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.timer = time.AfterFunc(time.Hour, func() { st.quiet(ctx) })
	st.timer.Stop() // until the first message
	st.open(ctx)
	return st
}

// beginning copies no more of a client's text than a node's id is long.
func beginning(s string) string {
	const longest = 512
	return strings.Clone(s[:min(len(s), longest)])
}

// open asks the store for the stream's number, again if it failed before.
func (s *stream) open(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.server.opts.PutTimeout)
	defer cancel()
	epoch, err := s.server.opts.Store.Open(ctx)
	if err != nil {
		s.server.storeFailed("number a stream", s.pod, err)
		return
	}
	s.epoch = epoch
	s.facts.epoch.Store(epoch)
}

// take adds a message to its flush.
func (s *stream) take(ctx context.Context, m *metrics.StreamMetricsMessage) {
	now := time.Now()
	s.server.counts.messages.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	part, repeats := read(m, s.flush.first, s.server.counts)
	millis := timestamp(m)
	if millis != 0 && millis == s.flush.millis && !repeats {
		if !s.flush.pending {
			s.server.counts.late.Inc() // the store has a part of the flush: it gets the whole
		}
		s.flush.join(part)
	} else {
		s.put(ctx)
		s.begin(part, millis, now)
	}
	s.flush.arrived, s.flush.pending = now, true
	s.timer.Reset(s.server.opts.Quiet)
}

// begin starts a flush with its first message.
func (s *stream) begin(part tally, millis int64, now time.Time) {
	if s.facts.flushes.Add(1) > 1 {
		s.server.counts.gap.Observe(now.Sub(s.pace.now).Seconds())
	}
	s.facts.last.Store(now.UnixNano())
	s.server.counts.flushes.Inc()
	s.flush = flush{tally: part, millis: millis, interval: s.pace.interval(millis, now)}
}

// quiet is called when no message has followed for a while. Who holds the lock
// then is not another quiet: either take, which starts the timer anew before it
// lets go, or the end of the stream. So there is nothing to wait for.
func (s *stream) quiet(ctx context.Context) {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if !s.over && time.Since(s.flush.arrived) >= s.server.opts.Quiet { // else a message has come meanwhile
		s.put(ctx)
	}
}

// finish puts what there is: the client has ended the stream in order.
func (s *stream) finish(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(ctx)
}

// end forgets what there is: the flush of a broken stream may lack messages.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.timer.Stop()
	if s.flush.pending {
		s.server.counts.incomplete.Inc()
	}
}

// put gives the store the flush, if it has not got it.
func (s *stream) put(ctx context.Context) {
	if !s.flush.pending {
		return
	}
	s.flush.pending = false
	s.judge()
	if s.flush.bad {
		s.server.counts.rejected.WithLabelValues(badValue).Inc()
		return
	}
	if s.epoch == 0 {
		if s.open(ctx); s.epoch == 0 {
			return
		}
	}
	s.puts++
	ctx, cancel := context.WithTimeout(ctx, s.server.opts.PutTimeout)
	defer cancel()
	err := s.server.opts.Store.Put(ctx, s.pod, store.Sample{
		Epoch: s.epoch, Flush: s.puts, At: s.flush.at(), Values: s.flush.values(s.captured, s.server.opts.Mean, s.flush.interval),
	})
	if err != nil {
		s.server.storeFailed("put a sample", s.pod, err)
		return
	}
	s.server.counts.visible.Observe(time.Since(s.flush.arrived).Seconds())
}

// judge notes what the flush says about the stream.
func (s *stream) judge() {
	f := &s.flush
	s.captured = s.captured || f.intercepted.seen
	s.facts.bad.Store(f.bad)
	if f.inbound.seen || f.outbound.seen {
		s.facts.requests.Store(true)
	}
	only := f.others && !s.facts.requests.Load()
	if s.facts.onlyOthers.Swap(only) != only && only {
		s.server.opts.Log.Warn("a proxy reports only the requests to its own listeners, such as http.stats: check the names in its proxyStatsMatcher",
			"pod", s.pod)
	}
}

// at is when the sender took the flush, or else when it came.
func (f *flush) at() time.Time {
	if f.millis == 0 {
		return f.arrived
	}
	return time.UnixMilli(f.millis)
}

// pace says how long the interval was that a flush is about. Sender and
// receiver both have a clock and neither is always right: the sender's may be
// set, and what waited in the network comes late and then all at once. Where
// they agree it is the sender's interval, and else the last that they agreed
// on.
type pace struct {
	every  time.Duration // agreed on
	millis int64         // the sender's time of the last flush; 0 = none
	now    time.Time     // the receiver's
}

// How far apart the clocks may be: a tenth, and what a network adds.
const (
	paceShare = 10
	paceSlack = 20 * time.Millisecond
)

func (p *pace) interval(millis int64, now time.Time) time.Duration {
	if p.millis != 0 && millis != 0 {
		theirs, ours := time.Duration(millis-p.millis)*time.Millisecond, now.Sub(p.now)
		if apart := (theirs - ours).Abs(); theirs > 0 && apart <= theirs/paceShare+paceSlack {
			p.every = theirs
		}
	}
	p.millis, p.now = millis, now
	return p.every
}
