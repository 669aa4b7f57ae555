package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"heartbed/activescale/store"
)

// fallible is a Redis in the memory of a bubble, and what kills it.
func fallible(t *testing.T) (s store.Store, kill func()) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	down := false
	r, err := store.NewRedis(store.RedisOptions{Address: "bubble:6379", TTL: ttl, Dial: func(context.Context, string, string) (net.Conn, error) {
		if down {
			return nil, errors.New("connection refused")
		}
		return m.Dial()
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r, func() {
		down = true
		m.Close()
	}
}

// keda issue 6887: the last value, for as long as the operator says, with its
// true time; then the error.
func TestHoldAnswersForTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		o := c.options()
		o.Hold = time.Minute
		p := New(o)
		c.pod(t, "a")
		c.pod(t, "b")
		c.push(t, "a", active(5))
		c.push(t, "b", active(6))
		_, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		for range 5 { // b goes on
			time.Sleep(10 * time.Second)
			c.push(t, "b", active(7))
			got, err := ask(t, p, store.InboundActiveRequests)
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"a": 5000, "b": 7000}, got)
		}
		one, err := p.GetMetricByName(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a"}, info(store.InboundActiveRequests), labels.Everything())
		require.NoError(t, err)
		require.True(t, at.Equal(one.Timestamp.Time), "held or not, the time is the sample's")
		time.Sleep(10 * time.Second)
		got, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"b": 7000}, got, "a minute is over")
	})
}

func TestHoldAnswersWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		s, kill := fallible(t)
		c.store = s
		o := c.options()
		o.Hold = time.Minute
		p := New(o)
		c.pod(t, "a")
		c.push(t, "a", active(5))
		_, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		kill()
		time.Sleep(59 * time.Second)
		got, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"a": 5000}, got)
		c.pod(t, "b")
		_, err = ask(t, p, store.InboundActiveRequests)
		require.True(t, apierrors.IsServiceUnavailable(err), "of b nothing is held, and half is no answer: %v", err)
		time.Sleep(time.Second)
		_, err = askFor(t, p, store.InboundActiveRequests, "app=web")
		require.True(t, apierrors.IsServiceUnavailable(err))
	})
}

func TestHoldIsOffByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		s, kill := fallible(t)
		c.store = s
		p := New(c.options())
		c.pod(t, "a")
		c.push(t, "a", active(5))
		_, err := ask(t, p, store.InboundActiveRequests)
		require.NoError(t, err)
		kill()
		_, err = ask(t, p, store.InboundActiveRequests)
		require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)
	})
}

// Pods come and go for as long as a provider runs.
func TestHoldForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld(time.Minute)
		for i := range 10_000 {
			h.see(map[store.Pod]store.Sample{{Namespace: "ns", Name: fmt.Sprint(i)}: {Epoch: 1, Flush: 1}})
			time.Sleep(time.Second)
			require.LessOrEqual(t, len(h.last), 121)
		}
	})
}
