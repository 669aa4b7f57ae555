package store

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// checks are what every Store keeps, on an empty one with the time to live.
var checks = map[string]func(*testing.T, time.Duration, Store){
	"gives what was put":     givesWhatWasPut,
	"older never replaces":   olderNeverReplaces,
	"silent is missing":      silentIsMissing,
	"a flush renews":         aFlushRenews,
	"bad samples":            badSamples,
	"epochs rise":            epochsRise,
	"never back in time":     neverBackInTime,
	"heartbeat without load": heartbeat,
}

// ttl is what stores of a bubble are made with: four flushes of 5 s.
const ttl = 20 * time.Second

// contract runs each check in a bubble of its own, whose time passes when all
// wait, on a store that open makes there and the test's end closes.
func contract(t *testing.T, open func(testing.TB) Store) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { check(t, ttl, open(t)) })
		})
	}
	t.Run("agrees with a map", func(t *testing.T) {
		rapid.Check(t, func(r *rapid.T) {
			plan := drawPlan(r)
			var fault string
			synctest.Test(t, func(t *testing.T) { fault = follow(t, plan, open(t)) })
			if fault != "" {
				r.Fatal(fault)
			}
		})
	})
}

func put(t testing.TB, s Store, pod Pod, sample Sample) {
	t.Helper()
	require.NoError(t, s.Put(t.Context(), pod, sample))
}

func get(t testing.TB, s Store, pods ...Pod) map[Pod]Sample {
	t.Helper()
	found, err := s.Get(t.Context(), pods)
	require.NoError(t, err)
	require.NotNil(t, found)
	return found
}

// sample is one whose value tells its place in the order.
func sample(epoch, flush uint64) Sample {
	return Sample{Epoch: epoch, Flush: flush, At: time.UnixMilli(1_700_000_000_123), Values: map[string]float64{
		InboundActiveRequests: value(epoch, flush),
	}}
}

func value(epoch, flush uint64) float64 { return float64(1000*epoch + flush) }

func givesWhatWasPut(t *testing.T, ttl time.Duration, s Store) {
	a, b, silent := Pod{"one", "pod"}, Pod{"two", "pod"}, Pod{"one", "silent"}
	require.Empty(t, get(t, s))
	require.Empty(t, get(t, s, a, b))
	first, second := sample(7, 1), sample(7, 2)
	first.Values = map[string]float64{InboundActiveRequests: 3, OutboundActiveRequests: 0.125, ActiveConnections: 1 << 40, "ours_tomorrow": -2.5}
	second.At = time.UnixMilli(-1) // a clock that is far off is reported, not judged
	put(t, s, a, first)
	put(t, s, b, second)
	found := get(t, s, a, silent, b, a)
	require.Len(t, found, 2)
	for pod, want := range map[Pod]Sample{a: first, b: second} {
		got := found[pod]
		require.Equal(t, want.Values, got.Values)
		require.True(t, want.At.Equal(got.At), "%v, want %v", got.At, want.At)
		require.Equal(t, []uint64{want.Epoch, want.Flush}, []uint64{got.Epoch, got.Flush})
		require.GreaterOrEqual(t, got.Age, time.Duration(0))
		require.Less(t, got.Age, ttl)
	}
}

func olderNeverReplaces(t *testing.T, _ time.Duration, s Store) {
	pod := Pod{"ns", "pod"}
	for _, step := range []struct {
		epoch, flush uint64
		want         float64
		why          string
	}{
		{300, 5, value(300, 5), "first"},
		{300, 4, value(300, 5), "an older flush of the stream"},
		{300, 6, value(300, 6), "a newer one"},
		{299, 1 << 60, value(300, 6), "a stream that was opened before, however far it has come"},
		{44, 7, value(300, 6), "44 is 300 in the last byte"},
		{1 << 40, 1, value(1<<40, 1), "a stream that was opened after"},
		{300, 7, value(1<<40, 1), "the zombie of the first stream"},
		{maxEpoch, 1, value(maxEpoch, 1), "the largest"},
	} {
		put(t, s, pod, sample(step.epoch, step.flush))
		require.Equal(t, step.want, get(t, s, pod)[pod].Values[InboundActiveRequests], step.why)
	}
	again := sample(maxEpoch, 1)
	again.Values = map[string]float64{ActiveConnections: 9}
	put(t, s, pod, again)
	require.Equal(t, again.Values, get(t, s, pod)[pod].Values, "the same flush again")
}

// zalando-incubator/kube-metrics-adapter issue 97: what is silent must not be
// answered for, for longer than it is fresh.
func silentIsMissing(t *testing.T, ttl time.Duration, s Store) {
	pod := Pod{"ns", "pod"}
	put(t, s, pod, sample(2, 9))
	time.Sleep(ttl / 2)
	found := get(t, s, pod)
	require.Len(t, found, 1)
	require.GreaterOrEqual(t, found[pod].Age, ttl/2-time.Millisecond)
	time.Sleep(ttl/2 + time.Millisecond)
	require.Empty(t, get(t, s, pod))
	put(t, s, pod, sample(1, 1))
	require.Len(t, get(t, s, pod), 1, "nothing is left that it could be older than")
}

func aFlushRenews(t *testing.T, ttl time.Duration, s Store) {
	pod := Pod{"ns", "pod"}
	for flush := range uint64(4) {
		put(t, s, pod, sample(1, flush+1))
		time.Sleep(ttl / 2)
	}
	found := get(t, s, pod)
	require.Len(t, found, 1)
	require.Equal(t, uint64(4), found[pod].Flush)
}

func badSamples(t *testing.T, _ time.Duration, s Store) {
	pod := Pod{"ns", "pod"}
	put(t, s, pod, sample(1, 1))
	many := map[string]float64{}
	for i := range maxValues + 1 {
		many[fmt.Sprint(i)] = 1
	}
	for name, bad := range map[string]Sample{
		"never opened":    {Epoch: 0, Flush: 2},
		"no flush":        {Epoch: 2, Flush: 0},
		"epoch too large": {Epoch: maxEpoch + 1, Flush: 1},
		"not a number":    {Epoch: 2, Flush: 1, Values: map[string]float64{"a": math.NaN()}},
		"infinite":        {Epoch: 2, Flush: 1, Values: map[string]float64{"a": math.Inf(-1)}},
		"long name":       {Epoch: 2, Flush: 1, Values: map[string]float64{strings.Repeat("a", maxName+1): 1}},
		"many values":     {Epoch: 2, Flush: 1, Values: many},
	} {
		require.ErrorContains(t, s.Put(t.Context(), pod, bad), "put sample", name)
	}
	require.Equal(t, value(1, 1), get(t, s, pod)[pod].Values[InboundActiveRequests])
}

func heartbeat(t *testing.T, _ time.Duration, s Store) {
	pod := Pod{"ns", "idle"}
	put(t, s, pod, Sample{Epoch: 1, Flush: 1, At: time.Time{}})
	found := get(t, s, pod)
	require.Contains(t, found, pod)
	require.Empty(t, found[pod].Values)
	require.True(t, found[pod].At.IsZero(), "%v", found[pod].At)
}

func epochsRise(t *testing.T, _ time.Duration, s Store) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint64]bool{}
	for range 4 {
		wait.Go(func() {
			last := uint64(0)
			for range 50 {
				epoch, err := s.Open(t.Context())
				mu.Lock()
				if err != nil || epoch <= last || epoch > maxEpoch || seen[epoch] {
					t.Errorf("epoch %d after %d, seen %v, error %v", epoch, last, seen[epoch], err)
				}
				seen[epoch], last = true, epoch
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	require.Len(t, seen, 200)
}

// neverBackInTime puts one pod's flushes from several receivers at once, in no
// order, and reads meanwhile.
func neverBackInTime(t *testing.T, _ time.Duration, s Store) {
	const streams, flushes = 4, 50
	pod := Pod{"ns", "pod"}
	var writers, readers sync.WaitGroup
	for epoch := range uint64(streams) {
		writers.Go(func() {
			for i := range uint64(flushes) {
				flush := 1 + (i*7)%flushes // each once, out of order
				if err := s.Put(t.Context(), pod, sample(epoch+1, flush)); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for last := (Sample{}); ; {
				select {
				case <-done:
					return
				default:
				}
				found, err := s.Get(t.Context(), []Pod{pod})
				if err != nil || found[pod].Before(last) {
					t.Errorf("%v after %v, error %v", found[pod], last, err)
					return
				}
				last = found[pod]
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	require.Equal(t, value(streams, flushes), get(t, s, pod)[pod].Values[InboundActiveRequests])
}

// step is a put of one of two pods after a sleep.
type step struct {
	sleep        time.Duration
	pod          Pod
	epoch, flush uint64
}

func drawPlan(r *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
		return step{
			sleep: time.Duration(max(0, rapid.IntRange(-30, 12).Draw(r, "tenths of the time to live"))) * ttl / 10,
			pod:   Pod{"ns", rapid.SampledFrom([]string{"a", "b"}).Draw(r, "pod")},
			epoch: rapid.Uint64Range(1, 3).Draw(r, "epoch"),
			flush: rapid.Uint64Range(1, 300).Draw(r, "flush"),
		}
	}), 1, 20).Draw(r, "plan")
}

// follow compares a sequence of puts with what a map and two rules say: older
// never replaces what is fresh, and nothing outlives its time. It tells the
// first difference.
func follow(t testing.TB, plan []step, s Store) string {
	type known struct {
		Sample
		until time.Time
	}
	want := map[Pod]known{}
	for i, p := range plan {
		time.Sleep(p.sleep)
		next := sample(p.epoch, p.flush)
		put(t, s, p.pod, next)
		now := time.Now()
		if old, ok := want[p.pod]; !ok || !now.Before(old.until) || !next.Before(old.Sample) {
			want[p.pod] = known{next, now.Add(ttl)}
		}
		found := get(t, s, Pod{"ns", "a"}, Pod{"ns", "b"})
		for _, pod := range []Pod{{"ns", "a"}, {"ns", "b"}} {
			expect, fresh := want[pod]
			fresh = fresh && now.Before(expect.until)
			got, ok := found[pod]
			if ok != fresh || ok && got.Values[InboundActiveRequests] != expect.Values[InboundActiveRequests] {
				return fmt.Sprintf("step %d, %v: got %v %v, want %v %v", i, pod, ok, got, fresh, expect)
			}
		}
	}
	return ""
}
