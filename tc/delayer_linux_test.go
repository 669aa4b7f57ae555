package tc

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func median(times []time.Duration) time.Duration {
	s := slices.Clone(times)
	slices.Sort(s)
	return s[len(s)/2]
}

// A matrix entry is a round-trip time: users of other tools get half of it or
// twice (Shopify/toxiproxy#655), or nothing at all (chaos-mesh#1389).
func TestAnEntryIsTheRoundTripTime(t *testing.T) {
	p := newPair(t)
	plain := median(p.roundTrips(t, 50, 5*time.Millisecond, time.Second))
	shapers := p.shape(t, Link{RTT: 50 * time.Millisecond}, Options{})
	times := p.roundTrips(t, 100, 5*time.Millisecond, time.Second)
	require.Len(t, times, 100)
	t.Log(plain, median(times), slices.Max(times))
	for _, s := range shapers {
		stats, err := s.Stats()
		require.NoError(t, err)
		t.Logf("%+v", stats)
		require.NoError(t, s.Close())
	}
	require.InDelta(t, 50, float64(median(times)-plain)/1e6, 1)
}
