package workloads

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// seconds turns seconds into the type of loads.
func seconds(s float64) Duration { return Duration(s * float64(time.Second)) }

// due draws up to n due times, in seconds; more is false where the schedule
// ended before.
func due(a *Arrivals, n int) (times []float64, more bool) {
	for range n {
		at, ok := a.Next()
		if !ok {
			return times, false
		}
		times = append(times, at.Seconds())
	}
	return times, true
}

// Even arrivals by hand: the k-th is due when the integral of the rate is k.
func TestEvenArrivals(t *testing.T) {
	points := func(atFactor ...float64) []RatePoint {
		var p []RatePoint
		for i := 0; i < len(atFactor); i += 2 {
			p = append(p, RatePoint{At: seconds(atFactor[i]), Factor: atFactor[i+1]})
		}
		return p
	}
	for _, c := range []struct {
		name string
		load Load
		rps  float64
		want []float64
		more bool
	}{
		{"constant", Load{}, 100, []float64{0.01, 0.02, 0.03}, true},
		{"fractional", Load{}, 2.5, []float64{0.4, 0.8, 1.2}, true},
		{"one in ten thousand seconds", Load{}, 1e-4, []float64{1e4, 2e4}, true},
		{"a step up takes along what had gathered", Load{Profile: points(0, 1, 2.5, 4)}, 1, []float64{1, 2, 2.625, 2.875, 3.125}, true},
		{"zero in the middle", Load{Profile: points(0, 1, 1.5, 0, 3.5, 1)}, 1, []float64{1, 4, 5}, true},
		{"zero at the start", Load{Profile: points(0, 0, 3, 2)}, 1, []float64{3.5, 4}, true},
		{"zero at the end", Load{Profile: points(0, 1, 1, 0)}, 2, []float64{0.5, 1}, false},
		{"zero throughout", Load{Profile: points(0, 0)}, 2, nil, false},
		// Mean 15, so the trial's 2 a second are 4, 0 and 2, and 2 from then on.
		{"recorded", Load{Recorded: &Recorded{Interval: seconds(1), RPS: []float64{30, 0, 15}}}, 2, []float64{0.25, 0.5, 0.75, 1, 2.5, 3, 3.5}, true},
		{"recorded, ends at zero", Load{Recorded: &Recorded{Interval: seconds(0.5), RPS: []float64{8, 0}}}, 4, []float64{0.125, 0.25, 0.375, 0.5}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.load.Schedule, c.load.Arrivals = "open", "even"
			require.NoError(t, c.load.Validate())
			a := NewArrivals(c.load, c.rps, nil)
			got, more := due(a, len(c.want))
			require.InDeltaSlice(t, c.want, got, 1e-9)
			if more && !c.more {
				_, more = a.Next()
			}
			require.Equal(t, c.more, more)
		})
	}
}

// Poisson arrivals have the index of dispersion of counts 1 (its standard
// error over n windows is sqrt(2/n)), even ones 0, at the same mean rate.
func TestIndexOfDispersion(t *testing.T) {
	const windows, perWindow = 20_000, 5.0
	for _, c := range []struct {
		arrivals string
		want     float64
	}{{"poisson", 1}, {"even", 0}} {
		a := NewArrivals(Load{Arrivals: c.arrivals}, perWindow, rand.New(rand.NewPCG(1, 2)))
		counts := make([]float64, windows)
		for {
			at, more := a.Next()
			require.True(t, more)
			if at.Seconds() > windows {
				break
			}
			counts[int(math.Ceil(at.Seconds()))-1]++
		}
		mean, square := 0.0, 0.0
		for _, n := range counts {
			mean += n / windows
		}
		for _, n := range counts {
			square += (n - mean) * (n - mean) / (windows - 1)
		}
		require.InEpsilon(t, perWindow, mean, 0.015, c.arrivals)
		require.InDelta(t, c.want, square/mean, 0.04, c.arrivals)
	}
}

// Under a profile the counts of Poisson arrivals follow the rate, and a pause
// has none.
func TestPoissonArrivalsFollowTheProfile(t *testing.T) {
	load := Load{Arrivals: "poisson", Profile: []RatePoint{{0, 1}, {seconds(100), 0}, {seconds(200), 3}, {seconds(300), 0}}}
	times, more := due(NewArrivals(load, 100, rand.New(rand.NewPCG(3, 4))), 1_000_000)
	require.False(t, more)
	var counts [3]float64
	for _, at := range times {
		counts[int(at/100)]++
	}
	require.InDelta(t, 10_000, counts[0], 4*math.Sqrt(10_000))
	require.Zero(t, counts[1])
	require.InDelta(t, 30_000, counts[2], 4*math.Sqrt(30_000))
}

// A request that is due later than a Duration can say is never due; nothing
// wraps round to a time before the start.
func TestRatesOutOfRange(t *testing.T) {
	for _, rps := range []float64{1e-10, 1e-12, 1e-300} {
		_, more := NewArrivals(Load{Arrivals: "even"}, rps, nil).Next()
		require.False(t, more, rps)
		c := NewConnections(Load{Threads: 1, Connections: 1}, rps)[0]
		c.Done()
		require.Greater(t, c.Due(), 50*365*24*time.Hour, rps)
		require.Greater(t, c.SendAt(time.Second), 50*365*24*time.Hour, rps)
		require.EqualValues(t, 1, c.DueBefore(time.Hour), rps)
	}
	c := NewConnections(Load{Threads: 1, Connections: 1}, 1e15)[0]
	require.EqualValues(t, time.Second, c.DueBefore(time.Second), "no interval is shorter than a nanosecond")
}

// wrk2 deals connections by integer division: 10 over 4 threads are 8, which
// offer the whole rate between them; each thread's start 5 ms apart.
func TestConnectionsAreDealtToThreads(t *testing.T) {
	for _, c := range []struct {
		threads, connections, want int
	}{{4, 10, 8}, {4, 8, 8}, {3, 3, 3}, {2, 7, 6}, {1, 10, 10}} {
		conns := NewConnections(Load{Threads: c.threads, Connections: c.connections, Stagger: seconds(0.005)}, 100)
		require.Len(t, conns, c.want)
		rate, each := 0.0, c.want/c.threads
		for i, conn := range conns {
			require.Equal(t, time.Duration(i%each)*5*time.Millisecond, conn.Due())
			first := conn.Due()
			conn.Done()
			rate += 1 / (conn.Due() - first).Seconds()
		}
		require.InEpsilon(t, 100, rate, 1e-6)
	}
	conns := NewConnections(Load{Threads: 2, Connections: 2}, 0.3)
	conns[0].Done()
	require.InDelta(t, 2/0.3, conns[0].Due().Seconds(), 1e-9, "a fractional rate")
}

// A free connection waits for its due time on a timer that counts whole
// milliseconds and one more, as wrk2's rounding does: it is never early and
// at most 1 ms late.
func TestConnectionKeepsItsPace(t *testing.T) {
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	for _, c := range []struct{ now, want time.Duration }{
		{ms(0), ms(11)}, {ms(0.3), ms(10.3)}, {ms(2), ms(11)}, {ms(9.5), ms(10.5)},
		{ms(10), ms(10)}, {ms(12), ms(12)}, // due: at once
	} {
		conn := NewConnections(Load{Threads: 1, Connections: 1}, 100)[0]
		require.Zero(t, conn.SendAt(0), "the first is due at the start")
		conn.Done()
		require.Equal(t, c.want, conn.SendAt(c.now), c.now)
	}
	rapid.Check(t, func(t *rapid.T) {
		conn := NewConnections(Load{Threads: 1, Connections: 1}, rapid.Float64Range(0.01, 900).Draw(t, "rps"))[0]
		conn.Done()
		now := time.Duration(rapid.Int64Range(0, int64(conn.Due()-1)).Draw(t, "now"))
		late := conn.SendAt(now) - conn.Due()
		require.Positive(t, late)
		require.LessOrEqual(t, late, time.Millisecond)
	})
}

// After a stall the held up requests follow as fast as they are answered: the
// double pace counts from the request that stalled (giltene/wrk2, usec_to_next_send
// asked a second time when its timer fires). Here request 10 leaves at 101 ms
// and stalls for 1 s; at 2 ms each the others catch up with an interval of
// 10 ms when 101 + 1000 + 2 j < 10 (10 + j), so after 125 of them.
func TestConnectionCatchesUpAsFastAsItIsAnswered(t *testing.T) {
	conn := NewConnections(Load{Threads: 1, Connections: 1}, 100)[0]
	answer := func(sent time.Duration) time.Duration { return sent + 2*time.Millisecond }
	now := answer(conn.SendAt(0))
	held := 0
	for range 400 {
		conn.Done()
		sent := conn.SendAt(now)
		if sent == now {
			held++
		}
		now = answer(sent)
		if conn.done == 10 {
			require.Equal(t, 101*time.Millisecond, sent)
			now = sent + time.Second
		}
	}
	require.InDelta(t, 125, held, 1)
	require.InDelta(t, float64(conn.Due()), float64(now), 3e6, "on pace again")
}

// asked is a connection of wrk2 as its event loop drives it: it asks whether
// to send when it is free and again when its timer fires.
type asked struct {
	interval, from time.Duration
	done, fromDone int64
	caughtUp       bool
}

func (a *asked) wait(now time.Duration) time.Duration {
	if due := time.Duration(a.done) * a.interval; due > now {
		a.caughtUp = true
		return due - now
	}
	if a.caughtUp {
		a.caughtUp, a.from, a.fromDone = false, now, a.done
	}
	return a.from + time.Duration(a.done-a.fromDone)*a.interval/2 - now
}

// Whatever the answers take, SendAt is when that loop sends.
func TestConnectionFollowsTheEventLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conn := NewConnections(Load{Threads: 1, Connections: 1}, rapid.Float64Range(0.5, 5000).Draw(t, "rps"))[0]
		loop := &asked{interval: conn.interval, caughtUp: true}
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			at := now
			for wait := loop.wait(at); wait > 0; wait = loop.wait(at) {
				at += wait.Truncate(time.Millisecond) + time.Millisecond
			}
			require.Equal(t, at, conn.SendAt(now))
			now = at + time.Duration(rapid.Int64Range(0, 300_000).Draw(t, "answer µs"))*time.Microsecond
			loop.done++
			conn.Done()
		}
	})
}

// The number of requests due before t, against a count by hand.
func TestDueBefore(t *testing.T) {
	conn := &Connection{start: 5 * time.Millisecond, interval: 10 * time.Millisecond} // due at 5, 15, 25, ...
	for ms, want := range map[float64]int64{0: 0, 4: 0, 5: 0, 5.000001: 1, 14.9: 1, 15: 1, 15.1: 2, 25: 2, 105: 10, 105.1: 11} {
		require.Equal(t, want, conn.DueBefore(time.Duration(ms*1e6)), ms)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := &Connection{start: time.Duration(rapid.Int64Range(0, 50).Draw(t, "start")), interval: time.Duration(rapid.Int64Range(1, 50).Draw(t, "interval"))}
		end := time.Duration(rapid.Int64Range(0, 2000).Draw(t, "end"))
		counted := int64(0)
		for due := c.start; due < end; due += c.interval {
			counted++
		}
		require.Equal(t, counted, c.DueBefore(end))
	})
}
