package tc_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"heartbed/tc"
	"heartbed/tc/tctest"
	"heartbed/testbed/testbedtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(burnEnv) != "" {
		burn(os.Getenv(burnEnv))
		return
	}
	// The race detector has each process sleep for a second before it exits.
	if err := os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := closePair(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// thePair is made once, as its carrier takes a second to come.
var (
	thePair   = sync.OnceValues(tctest.NewPair)
	closePair = func() error { return nil }
)

func scratchPair(t *testing.T) tctest.Pair {
	t.Helper()
	testbedtest.Require(t, "netns", tc.Probe(t.Context()).NFQueue)
	p, err := thePair()
	require.NoError(t, err)
	closePair = p.Close
	return p
}

func shape(t *testing.T, p tctest.Pair, link tc.Link, o tc.Options) [2]tc.Shaper {
	t.Helper()
	if o.Method == "" {
		o.Method = tc.NFQueue
	}
	shapers, err := p.Shape(t.Context(), link, o)
	require.NoError(t, err)
	for _, s := range shapers {
		t.Cleanup(func() {
			if err := s.Close(); !errors.Is(err, os.ErrClosed) {
				require.NoError(t, err)
			}
		})
	}
	return shapers
}

func stats(t *testing.T, s tc.Shaper) tc.Stats {
	t.Helper()
	got, err := s.Stats()
	require.NoError(t, err)
	return got
}

func ping(t *testing.T, p tctest.Pair, n int, gap time.Duration) []tctest.Arrival {
	t.Helper()
	a, err := p.Ping(n, gap, 2*time.Second)
	require.NoError(t, err)
	return a
}

func stream(t *testing.T, p tctest.Pair, n int, gap time.Duration) []tctest.Arrival {
	t.Helper()
	a, err := p.Stream(n, gap, 2*time.Second)
	require.NoError(t, err)
	return a
}

// took gives the middle of the times, in milliseconds.
func took(arrivals []tctest.Arrival) float64 {
	times := make([]float64, len(arrivals))
	for i, a := range arrivals {
		times[i] = float64(a.Took) / 1e6
	}
	slices.Sort(times)
	return times[len(times)/2]
}

func inOrder(arrivals []tctest.Arrival) bool {
	return slices.IsSortedFunc(arrivals, func(a, b tctest.Arrival) int { return a.Seq - b.Seq })
}

// A matrix entry is a round-trip time: users of other tools get half of it or
// twice (Shopify/toxiproxy#655), or nothing at all (chaos-mesh#1389).
func TestAnEntryIsTheRoundTripTime(t *testing.T) {
	for _, method := range []tc.Method{tc.NFQueue, tc.Netem} {
		t.Run(string(method), func(t *testing.T) {
			if method == tc.Netem {
				testbedtest.Require(t, "netem", tc.Probe(t.Context()).Netem)
			}
			p := scratchPair(t)
			shapers := shape(t, p, tc.Link{RTT: 50 * time.Millisecond}, tc.Options{Method: method})
			require.InDelta(t, 50, took(ping(t, p, 50, 2*time.Millisecond)), 1)
			require.InDelta(t, 25, took(stream(t, p, 50, 2*time.Millisecond)), 0.5)

			link := tc.Link{RTT: 20 * time.Millisecond}
			require.NoError(t, shapers[0].Apply(t.Context(), map[netip.Addr]tc.Link{p.Addr[1]: link}))
			require.InDelta(t, 25+10, took(ping(t, p, 50, 2*time.Millisecond)), 1)
			require.NoError(t, shapers[0].Apply(t.Context(), nil))
			require.InDelta(t, 25, took(ping(t, p, 50, 2*time.Millisecond)), 1)
			require.NoError(t, shapers[0].Close())
			require.InDelta(t, 25, took(ping(t, p, 50, 2*time.Millisecond)), 1)
			require.GreaterOrEqual(t, stats(t, shapers[1]).Packets, uint64(200))
			require.NoError(t, shapers[1].Close())
			require.Less(t, took(ping(t, p, 50, 2*time.Millisecond)), 1.0)
		})
	}
}

func TestOneSideAloneAddsTheWholeRoundTrip(t *testing.T) {
	p := scratchPair(t)
	s, err := tc.NewShaper(t.Context(), tc.Options{NS: p.NS[0], Method: tc.NFQueue, Alone: true})
	require.NoError(t, err)
	require.NoError(t, s.Apply(t.Context(), map[netip.Addr]tc.Link{p.Addr[1]: {RTT: 20 * time.Millisecond}}))
	require.InDelta(t, 20, took(ping(t, p, 50, 2*time.Millisecond)), 1)
	require.NoError(t, s.Close())
}

// With netem's default of 1,000 places, 600 packets/s and one second of delay
// are on the edge and anything more is dropped (iproute2#56).
func TestALongDelayDropsNothing(t *testing.T) {
	p := scratchPair(t)
	shapers := shape(t, p, tc.Link{RTT: 2 * time.Second}, tc.Options{})
	got := stream(t, p, 700, time.Second/600)
	require.Len(t, got, 700)
	require.InDelta(t, 1000, took(got), 1)
	require.True(t, inOrder(got))
	require.Zero(t, stats(t, shapers[1]).Dropped)
}

// One millisecond of jitter must not turn into retransmissions: with netem it
// reorders packets, and receivers take those for lost (Haivision/srt#735).
func TestJitterKeepsTheOrder(t *testing.T) {
	p := scratchPair(t)
	shapers := shape(t, p, tc.Link{RTT: 10 * time.Millisecond, Jitter: time.Millisecond}, tc.Options{Seed: 1})
	got := stream(t, p, 2000, time.Second/5000)
	require.Len(t, got, 2000)
	require.True(t, inOrder(got))
	require.Zero(t, stats(t, shapers[1]).Reordered)

	sparse := stream(t, p, 200, 3*time.Millisecond) // here packets could not overtake anyway
	times := make([]float64, len(sparse))
	for i, a := range sparse {
		times[i] = float64(a.Took) / 1e6
	}
	slices.Sort(times)
	require.GreaterOrEqual(t, times[0], 5.0, "jitter only adds")
	require.InDelta(t, 5, times[len(times)/4], 0.5, "half of them have none")
	require.Greater(t, times[len(times)-1], 6.5)
}

func TestLossFollowsTheSeed(t *testing.T) {
	p := scratchPair(t)
	through := func(seed uint64) (seqs []int) {
		shapers := shape(t, p, tc.Link{Loss: 0.2}, tc.Options{Seed: seed})
		got, err := p.Stream(1000, time.Second/5000, 200*time.Millisecond)
		require.NoError(t, err)
		require.InDelta(t, 800, len(got), 60)
		require.EqualValues(t, 1000-len(got), stats(t, shapers[1]).Lost)
		for _, s := range shapers {
			require.NoError(t, s.Close())
		}
		for _, a := range got {
			seqs = append(seqs, a.Seq)
		}
		return seqs
	}
	first := through(7)
	require.Equal(t, first, through(7))
	require.NotEqual(t, first, through(8))
}

func TestARateSpacesPackets(t *testing.T) {
	p := scratchPair(t)
	// A datagram of 16 bytes is a packet of 44: 500 packets/s.
	shapers := shape(t, p, tc.Link{RateBits: 500 * 8 * 44}, tc.Options{})
	got := stream(t, p, 40, time.Millisecond)
	require.Len(t, got, 40)
	require.InDelta(t, 2*40-39, float64(got[39].Took)/1e6, 3)

	// Of twice the rate for 400 ms half comes, and what the buffer of 100 ms
	// holds then.
	got, err := p.Stream(400, time.Millisecond, 200*time.Millisecond)
	require.NoError(t, err)
	require.InDelta(t, 200+50, len(got), 10)
	after := stats(t, shapers[1])
	require.EqualValues(t, 400-len(got), after.Overflown)
	require.Zero(t, after.Dropped)
}

func TestTwentyThousandPacketsASecond(t *testing.T) {
	p := scratchPair(t)
	shapers := shape(t, p, tc.Link{RTT: 20 * time.Millisecond}, tc.Options{})
	got := stream(t, p, 20_000, 50*time.Microsecond)
	require.Len(t, got, 20_000)
	require.True(t, inOrder(got))
	require.Zero(t, stats(t, shapers[1]).Dropped)
	t.Logf("median delay %.2f ms of 10 ms, %+v", took(got), stats(t, shapers[1]))
}

func TestAFullQueueIsCounted(t *testing.T) {
	p := scratchPair(t)
	shapers := shape(t, p, tc.Link{RTT: 400 * time.Millisecond}, tc.Options{PacketRate: 10})
	got, err := p.Stream(100, time.Millisecond, 400*time.Millisecond)
	require.NoError(t, err)
	require.Less(t, len(got), 100)
	require.EqualValues(t, 100-len(got), stats(t, shapers[1]).Dropped)
}

func TestCloseLetsPacketsGo(t *testing.T) {
	p := scratchPair(t)
	shapers := shape(t, p, tc.Link{RTT: 20 * time.Second}, tc.Options{})
	time.AfterFunc(100*time.Millisecond, func() {
		for _, s := range shapers {
			_ = s.Close()
		}
	})
	got := ping(t, p, 20, time.Millisecond)
	require.Len(t, got, 20)
	require.True(t, inOrder(got))
	_, err := shapers[0].Stats()
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorIs(t, shapers[0].Apply(context.Background(), nil), os.ErrClosed)
	require.ErrorIs(t, shapers[0].Close(), os.ErrClosed)
}

func TestOnlyOneShaperANamespace(t *testing.T) {
	p := scratchPair(t)
	o := tc.Options{NS: p.NS[0], Method: tc.NFQueue}
	s, err := tc.NewShaper(t.Context(), o)
	require.NoError(t, err)
	_, err = tc.NewShaper(t.Context(), o)
	require.ErrorContains(t, err, "another shaper")
	require.NoError(t, s.Apply(t.Context(), map[netip.Addr]tc.Link{p.Addr[1]: {RTT: 20 * time.Millisecond}}))
	require.InDelta(t, 10, took(ping(t, p, 20, time.Millisecond)), 1, "the first goes on")

	require.NoError(t, tc.Clear(t.Context(), p.NS[0]))
	require.Less(t, took(ping(t, p, 20, time.Millisecond)), 1.0)
	require.NoError(t, tc.Clear(t.Context(), p.NS[0]))
	require.NoError(t, s.Close())
	s, err = tc.NewShaper(t.Context(), o)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// This kernel may lack what it wants; then it says which part, and nothing else.
func TestProbeGivesOneOfThreeAnswers(t *testing.T) {
	probed := tc.Probe(t.Context())
	if probed.Netem != nil {
		require.ErrorIs(t, probed.Netem, errors.ErrUnsupported)
		require.ErrorContains(t, probed.Netem, "netem: no such file or directory")
		_, err := tc.NewShaper(t.Context(), tc.Options{Method: tc.Netem})
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	testbedtest.Require(t, "netns", probed.NFQueue)
}

func TestNewShaperNamesWhatIsWrong(t *testing.T) {
	_, err := tc.NewShaper(t.Context(), tc.Options{Method: "magic", PacketRate: -1})
	require.ErrorContains(t, err, "magic")
	require.ErrorContains(t, err, "packet rate")
	_, err = tc.NewShaper(t.Context(), tc.Options{NS: "no-such-namespace", Method: tc.NFQueue})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorIs(t, tc.Clear(t.Context(), "no-such-namespace"), os.ErrNotExist)
}
