package loadgen

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClockIsNeverEarlyAndStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	clock, err := newClock(ctx, 0)
	require.NoError(t, err)
	defer clock.close()
	for _, wait := range []time.Duration{-time.Second, 0, 10 * time.Microsecond, 700 * time.Microsecond, 5 * time.Millisecond} {
		at := time.Now().Add(wait)
		require.NoError(t, clock.until(at))
		require.False(t, time.Now().Before(at), "wait of %v", wait)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	require.Error(t, clock.until(start.Add(time.Minute)))
	require.Less(t, time.Since(start), 10*time.Second)
	require.Error(t, clock.until(time.Now()), "once stopped it stays so")
}

func TestQueue(t *testing.T) {
	var q queue[int]
	next, last := 0, 0
	for round := range 200 { // grows and shrinks by turns
		for range round % 7 {
			q.push(last)
			last++
		}
		for range min(q.len(), round%5) {
			require.Equal(t, next, q.pop())
			next++
		}
		require.Equal(t, last-next, q.len())
	}
	for v := range q.all() {
		require.Equal(t, next, v)
		next++
	}
	require.Equal(t, last, next)
}
