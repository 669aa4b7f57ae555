package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestShared(t *testing.T) {
	contract(t, func(t testing.TB) Store { return NewShared(newBubble(t).redis(t)) })
}

// The contract holds while Redis is down as well: there is one replica then.
func TestSharedWithoutRedis(t *testing.T) {
	for name, check := range checks {
		switch name {
		case "gives what was put", "silent is missing", "never back in time":
			continue // they ask for pods that nobody has pushed, which is an error here
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				b.kill()
				check(t, ttl, NewShared(b.redis(t)))
			})
		})
	}
}

// replicas are two that share a Redis.
func replicas(t *testing.T) (b *bubble, one, other *Shared) {
	b = newBubble(t)
	return b, NewShared(b.redis(t)), NewShared(b.redis(t))
}

func TestSharedAnyReplicaAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, other := replicas(t)
		here, there := Pod{"ns", "here"}, Pod{"ns", "there"}
		put(t, one, here, sample(1, 1))
		put(t, other, there, sample(2, 1))
		exchanges := testutil.ToFloat64(b.measures.exchanges)
		for _, s := range []*Shared{one, other} {
			require.Len(t, get(t, s, here, there), 2)
			require.NoError(t, s.Health())
		}
		require.Equal(t, exchanges+2, testutil.ToFloat64(b.measures.exchanges))
		// The stream moves: the newer wins, wherever it is asked and whoever is late.
		put(t, other, here, sample(3, 1))
		put(t, one, here, sample(1, 2))
		for _, s := range []*Shared{one, other} {
			require.Equal(t, uint64(3), get(t, s, here)[here].Epoch)
		}
		require.Equal(t, 1.0, testutil.ToFloat64(b.measures.older))
	})
}

// Blindness must not scale in (KEDA issues 3064, 3065, 965).
func TestSharedWithRedisDown(t *testing.T) {
	for name, fail := range map[string]func(testing.TB, *bubble){
		"dead":  func(_ testing.TB, b *bubble) { b.kill() },
		"hangs": func(t testing.TB, b *bubble) { b.hang(t) },
		"full": func(_ testing.TB, b *bubble) {
			b.SetError("OOM command not allowed when used memory > 'maxmemory'.")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, one, other := replicas(t)
				here, there := Pod{"ns", "here"}, Pod{"ns", "there"}
				put(t, one, here, sample(1, 1))
				put(t, other, there, sample(2, 1))
				fail(t, b)
				put(t, one, here, sample(1, 2))
				require.Equal(t, uint64(2), get(t, one, here)[here].Flush, "covers all that are asked for")
				_, err := one.Get(t.Context(), []Pod{here, there})
				require.ErrorContains(t, err, "1 of 2 pods are known to this replica")
				require.ErrorContains(t, one.Health(), "samples of other replicas cannot be read for")
				require.ErrorContains(t, one.Health(), "samples cannot be shared with other replicas for")
				require.Equal(t, 1.0, testutil.ToFloat64(b.measures.degraded))

				time.Sleep(ttl)
				_, err = one.Get(t.Context(), []Pod{here})
				require.ErrorContains(t, err, "0 of 1 pods", "silent and blind is no answer either")
			})
		})
	}
}

// What a query has read stays fresh here, so that a Redis which starts anew and
// empty is no gap, and one that dies is none for as long.
func TestSharedBridgesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, other := replicas(t)
		here, there := Pod{"ns", "here"}, Pod{"ns", "there"}
		put(t, one, here, sample(1, 1))
		put(t, other, there, sample(2, 1))
		time.Sleep(ttl / 4)
		require.Len(t, get(t, one, here, there), 2)
		b.FlushAll()
		time.Sleep(ttl / 4)
		found := get(t, one, here, there)
		require.Len(t, found, 2)
		require.Equal(t, ttl/2, found[there].Age)
		b.kill()
		require.Len(t, get(t, one, here, there), 2)
		time.Sleep(ttl / 2)
		put(t, one, here, sample(1, 2))
		_, err := one.Get(t.Context(), []Pod{here, there})
		require.ErrorContains(t, err, "1 of 2 pods are known to this replica")
	})
}

// A stream moves away and Redis dies: what it pushed here before is older than
// what was read of it since.
func TestSharedNeverGoesBackWhenRedisDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, other := replicas(t)
		pod := Pod{"ns", "pod"}
		put(t, one, pod, sample(1, 1))
		put(t, other, pod, sample(2, 1))
		require.Equal(t, uint64(2), get(t, one, pod)[pod].Epoch)
		b.kill()
		require.Equal(t, uint64(2), get(t, one, pod)[pod].Epoch)
	})
}

// A full Redis answers reads: what it lacks may be what it did not take.
func TestSharedTrustsNoRedisThatTakesNoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, _ := replicas(t)
		here, there := Pod{"ns", "here"}, Pod{"ns", "there"}
		put(t, one, here, sample(1, 1))
		b.SetError("OOM command not allowed when used memory > 'maxmemory'.")
		put(t, one, here, sample(1, 2))
		b.SetError("")
		_, err := one.Get(t.Context(), []Pod{here, there})
		require.ErrorContains(t, err, "OOM")
		require.Len(t, get(t, one, here), 1)
		put(t, one, here, sample(1, 3))
		require.Len(t, get(t, one, here, there), 1, "writes are taken again, so the other is missing indeed")
		require.NoError(t, one.Health())
		require.Equal(t, 0.0, testutil.ToFloat64(b.measures.degraded))
	})
}

// A stream that was opened without Redis must not lose, once Redis is back,
// against one that was opened before, nor win against one that is opened after,
// on any replica.
func TestSharedOrdersStreamsOverAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, other := replicas(t)
		pod := Pod{"ns", "pod"}
		open := func(s *Shared) uint64 {
			epoch, err := s.Open(t.Context())
			require.NoError(t, err)
			return epoch
		}
		// One replica's numbers have come far ahead of every clock.
		require.NoError(t, b.Set("activescale:epoch", "4000000000000000"))
		before := open(one)
		put(t, one, pod, sample(before, 5))
		b.kill()
		during := open(one)
		require.Greater(t, during, before)
		require.Greater(t, open(one), during)
		put(t, one, pod, sample(during, 1))
		require.Equal(t, during, get(t, one, pod)[pod].Epoch)

		b.start()
		time.Sleep(tripFor)
		put(t, one, pod, sample(during, 2))
		require.Equal(t, during, get(t, other, pod)[pod].Epoch)
		after := open(other)
		require.Greater(t, after, during)
		put(t, other, pod, sample(after, 1))
		for _, s := range []*Shared{one, other} {
			require.Equal(t, after, get(t, s, pod)[pod].Epoch)
		}
	})
}

// kubernetes issue 96242: HPAs that wait for one answer wait for all of them.
func TestSharedDoesNotQueueBehindAHangingRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, _ := replicas(t)
		pod := Pod{"ns", "pod"}
		put(t, one, pod, sample(1, 1)) // there is a server to hang
		b.hang(t)
		start := time.Now()
		for flush := range uint64(1000) {
			put(t, one, pod, sample(1, flush+1))
			require.Len(t, get(t, one, pod), 1)
		}
		require.LessOrEqual(t, time.Since(start), 10*time.Second, "not 2000 timeouts")
		_, err := one.Get(t.Context(), []Pod{{"ns", "other"}})
		require.ErrorContains(t, err, "not asked again yet")
	})
}

func TestSharedCallerThatGivesUpSaysNothingOfRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, one, _ := replicas(t)
		put(t, one, Pod{"ns", "pod"}, sample(1, 1))
		b.hang(t)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := one.Get(ctx, []Pod{{"ns", "other"}})
			require.ErrorContains(t, err, "timeout")
			cancel()
			ctx, cancel = context.WithCancel(t.Context())
			cancel()
			_, err = one.Open(ctx)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, one.Health())
	})
}
