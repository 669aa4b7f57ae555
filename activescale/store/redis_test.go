package store

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestRedis(t *testing.T) {
	contract(t, func(t testing.TB) Store { return newBubble(t).redis(t) })
}

func TestRedisOptions(t *testing.T) {
	for name, c := range map[string]struct {
		RedisOptions
		want string
	}{
		"no address":    {RedisOptions{TTL: ttl}, `address ""`},
		"no port":       {RedisOptions{TTL: ttl, Address: "a:1, b"}, `address " b": address b: missing port`},
		"no ttl":        {RedisOptions{Address: "a:1"}, "time to live of 0s"},
		"negative wait": {RedisOptions{Address: "a:1", TTL: ttl, Timeout: -1}, "timeout -1ns"},
	} {
		_, err := NewRedis(c.RedisOptions)
		require.ErrorContains(t, err, c.want, name)
	}
	r, err := NewRedis(RedisOptions{Address: "[::1]:6379 , b:1", TTL: ttl})
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

// anyflow's design took 2 reads a pod and 1 + N writes a flush.
func TestRedisTakesOneRoundTrip(t *testing.T) {
	b := newBubble(t)
	require.NoError(t, b.Start()) // on TCP: a pipe in memory holds no 200 commands
	r, err := NewRedis(RedisOptions{Address: b.Addr(), TTL: ttl, Timeout: patience, Measures: b.measures})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	pods := make([]Pod, 100)
	for i := range pods {
		pods[i] = Pod{"ns", fmt.Sprint(i)}
	}
	put(t, r, pods[0], sample(1, 1)) // loads the script
	_, err = r.Open(t.Context())
	require.NoError(t, err)
	exchanges := func() float64 { return testutil.ToFloat64(b.measures.exchanges) }

	before := exchanges()
	for _, pod := range pods {
		put(t, r, pod, sample(1, 2))
	}
	require.Equal(t, before+100, exchanges())
	require.Len(t, get(t, r, pods...), 100)
	require.Equal(t, before+101, exchanges())
	_, err = r.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, before+102, exchanges())
}

// KEDA issues 3064, 3065: what cannot be read is missing, never a zero.
func TestRedisGarbageIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		r := b.redis(t)
		good, bad := Pod{"ns", "good"}, Pod{"ns", "bad"}
		put(t, r, good, sample(3, 3))
		spoil := map[string]func(key string){
			"text":          func(key string) { require.NoError(t, b.Set(key, "0.000000")); b.SetTTL(key, ttl) },
			"never expires": func(key string) { require.NoError(t, b.Set(key, string(encode(sample(9, 9))))) },
			"expires late":  func(key string) { put(t, r, bad, sample(9, 9)); b.SetTTL(key, 2*ttl) },
			"another type":  func(key string) { _, err := b.Push(key, "a"); require.NoError(t, err) },
			"later version": func(key string) {
				require.NoError(t, b.Set(key, "\x02"+string(encode(sample(9, 9))[1:])))
				b.SetTTL(key, ttl)
			},
			"nothing inside": func(key string) { require.NoError(t, b.Set(key, "")); b.SetTTL(key, ttl) },
		}
		for name, spoilt := range spoil {
			b.Del(r.key(bad))
			spoilt(r.key(bad))
			counted := testutil.ToFloat64(b.measures.garbage)
			require.Len(t, get(t, r, bad, good), 1, name)
			require.Equal(t, counted+1, testutil.ToFloat64(b.measures.garbage), name)
			put(t, r, bad, sample(1, 1))
			require.Len(t, get(t, r, bad, good), 2, "%s: the next flush mends it", name)
		}
	})
}

// A Redis that starts anew without what it held must not number new streams
// below those which are still open: the pods of the new ones would be refused.
func TestRedisEpochsOutliveTheCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		one, other := b.redis(t), b.redis(t)
		require.NoError(t, b.Set("activescale:epoch", "4000000000000000")) // as if clocks had been far ahead once
		old, err := one.Open(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint64(4000000000000001), old)
		put(t, one, Pod{"ns", "pod"}, sample(old, 1))
		require.Len(t, get(t, other, Pod{"ns", "pod"}), 1)
		for _, loss := range []string{"", "garbage", "9e300", "nan"} {
			b.Del("activescale:epoch")
			if loss != "" {
				require.NoError(t, b.Set("activescale:epoch", loss))
			}
			epoch, err := other.Open(t.Context())
			require.NoError(t, err, loss)
			require.Greater(t, epoch, old, "the other replica has seen it: %s", loss)
			old = epoch
		}
		b.FlushAll()
		fresh, err := b.redis(t).Open(t.Context())
		require.NoError(t, err)
		require.Greater(t, fresh, uint64(time.Now().Add(-time.Second).UnixMilli()), "who has seen nothing goes by the clock")
	})
}

func TestRedisFailuresAreErrors(t *testing.T) {
	pod := Pod{"ns", "pod"}
	for name, c := range map[string]struct {
		fail func(testing.TB, *bubble)
		want string
	}{
		"dead":        {func(_ testing.TB, b *bubble) { b.kill() }, "closed pipe|connection refused"},
		"hangs":       {func(t testing.TB, b *bubble) { b.hang(t) }, "timeout"},
		"loading":     {func(_ testing.TB, b *bubble) { b.SetError("LOADING Redis is loading the dataset in memory") }, "LOADING"},
		"no password": {func(_ testing.TB, b *bubble) { b.SetError("NOAUTH Authentication required.") }, "NOAUTH"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				r := b.redis(t)
				put(t, r, pod, sample(1, 1))
				c.fail(t, b)
				start := time.Now()
				_, err := r.Get(t.Context(), []Pod{pod})
				require.Regexp(t, c.want, err)
				require.Regexp(t, c.want, r.Put(t.Context(), pod, sample(1, 2)))
				_, err = r.Open(t.Context())
				require.Regexp(t, c.want, err)
				require.LessOrEqual(t, time.Since(start), 3*r.Timeout)
				for _, operation := range []string{"get", "put", "open"} {
					require.Equal(t, 1.0, testutil.ToFloat64(b.measures.errors.WithLabelValues("redis", operation)), operation)
				}
			})
		})
	}
}
