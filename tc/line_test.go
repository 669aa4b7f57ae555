package tc

import (
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var somePeer = netip.MustParseAddr("10.0.0.2")

// Whatever the link and the arrivals: no packet is due before an earlier one,
// before its delay, or so late that no rule explains it.
func TestDueTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delay := time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "delay"))
		link := Link{
			Jitter:   time.Duration(rapid.Int64Range(0, int64(delay)).Draw(t, "jitter")),
			Loss:     rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "loss"),
			RateBits: rapid.SampledFrom([]float64{0, 1e5, 1e7}).Draw(t, "rate"),
		}
		l := newLine(somePeer, rapid.Uint64().Draw(t, "seed"))
		l.set(link, delay)
		var now, last, latest time.Duration
		for range rapid.IntRange(1, 200).Draw(t, "packets") {
			now += time.Duration(rapid.Int64Range(0, 1e7).Draw(t, "gap"))
			due, fate := l.next(now, rapid.IntRange(20, 1500).Draw(t, "bytes"))
			switch fate {
			case lost:
				require.Positive(t, link.Loss)
				continue
			case overflown:
				require.Positive(t, link.RateBits)
				continue
			}
			wire := time.Duration(0) // a packet of 1,500 bytes and the buffer before it
			if link.RateBits > 0 {
				wire = lineBuffer + time.Duration(12_000/link.RateBits*1e9)
			}
			latest = max(latest, now+wire+delay+10*link.Jitter)
			require.GreaterOrEqual(t, due, last)
			require.GreaterOrEqual(t, due, now+delay)
			require.LessOrEqual(t, due, latest)
			last = due
		}
	})
}

func TestARateSerialises(t *testing.T) {
	l := newLine(somePeer, 0)
	l.set(Link{RateBits: 8e6}, time.Second) // a byte a microsecond
	for i := range 10 {
		due, fate := l.next(0, 1000)
		require.Equal(t, kept, fate)
		require.Equal(t, time.Second+time.Duration(i+1)*time.Millisecond, due)
	}
	for range 91 { // until the last waits for as long as the buffer is
		l.next(0, 1000)
	}
	_, fate := l.next(0, 1000)
	require.Equal(t, overflown, fate)
	_, fate = l.next(2*time.Millisecond, 1000)
	require.Equal(t, kept, fate)
}

// The simulator adds max(0, N(0, s^2)) to a message: half of them have nothing,
// the mean is s/sqrt(2 pi).
func TestJitterIsTheUpperHalfOfANormal(t *testing.T) {
	l := newLine(somePeer, 1)
	l.set(Link{Jitter: time.Millisecond}, time.Second)
	const n = 100_000
	var extra []float64 // ms
	for i := range n {
		now := time.Duration(i) * time.Second // none waits for another
		due, _ := l.next(now, 100)
		extra = append(extra, float64(due-now-time.Second)/1e6)
	}
	requireUpperHalf(t, extra, 0.02)
}

// requireUpperHalf checks that max(0, N(0, 1)) is what the values follow.
func requireUpperHalf(t *testing.T, values []float64, tolerance float64) {
	t.Helper()
	slices.Sort(values)
	mean := 0.0
	for _, v := range values {
		mean += v / float64(len(values))
	}
	require.InDelta(t, 1/math.Sqrt(2*math.Pi), mean, tolerance)
	for p, want := range map[float64]float64{0: 0, 0.49: 0, 0.75: 0.6745, 0.9: 1.2816, 0.99: 2.3263} {
		require.InDelta(t, want, values[int(p*float64(len(values)))], 2*tolerance, "quantile %v", p)
	}
}

func TestLossIsTheShareAskedFor(t *testing.T) {
	l := newLine(somePeer, 3)
	l.set(Link{Loss: 0.1}, 0)
	n := 0
	for range 100_000 {
		if _, f := l.next(0, 100); f == lost {
			n++
		}
	}
	require.InDelta(t, 10_000, n, 5*math.Sqrt(100_000*0.1*0.9))
}

func TestWaitingGivesTheNextOneDue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom([]uint32{0, math.MaxUint32 - 5}).Draw(t, "start") // numbers wrap
		var w waiting
		var all []packet
		for i, due := range rapid.SliceOf(rapid.IntRange(0, 5)).Draw(t, "due") {
			p := packet{id: start + uint32(i), due: time.Duration(due)}
			all = append(all, p)
			w.push(p)
		}
		slices.SortStableFunc(all, func(a, b packet) int { return int(a.due - b.due) })
		for _, want := range all {
			require.Equal(t, want, w.pop())
		}
		require.Empty(t, w)
	})
}

func TestCheckLinksNamesAllFaults(t *testing.T) {
	require.NoError(t, CheckLinks(map[netip.Addr]Link{
		somePeer:                       {RTT: time.Second, Jitter: time.Second, Loss: 1, RateBits: 1e9},
		netip.MustParseAddr("fd00::2"): {},
	}))
	err := CheckLinks(map[netip.Addr]Link{
		somePeer:                              {RTT: -1, Loss: math.NaN(), RateBits: 1},
		netip.MustParseAddr("10.0.0.3"):       {RTT: time.Second, Jitter: 2 * time.Second, RateBits: math.Inf(1)},
		netip.MustParseAddr("0.0.0.0"):        {},
		netip.MustParseAddr("::ffff:1.2.3.4"): {},
		{}:                                    {},
	})
	for _, want := range []string{
		"10.0.0.2: RTT: found -1ns", "10.0.0.2: loss: found NaN", "10.0.0.2: rate: found 1,",
		"10.0.0.3: jitter: found 2s", "10.0.0.3: rate: found +Inf",
		"0.0.0.0: address", "::ffff:1.2.3.4: address", "invalid IP: address",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestQueueLength(t *testing.T) {
	links := map[netip.Addr]Link{somePeer: {RTT: 2 * time.Second}}
	require.EqualValues(t, 1080, Options{PacketRate: 600}.queueLength(links))
	require.InDelta(t, 1980, Options{PacketRate: 600, Alone: true}.queueLength(links), 1)
	require.EqualValues(t, 1.5*DefaultPacketRate*0.2, Options{}.queueLength(nil))
}
