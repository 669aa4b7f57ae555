package store

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// bubble is a Redis server in the memory of a synctest bubble.
type bubble struct {
	*miniredis.Miniredis
	registry *prometheus.Registry
	measures *Measures
	down     atomic.Bool // refuses connections
}

func newBubble(t testing.TB) *bubble {
	r := prometheus.NewRegistry()
	b := &bubble{Miniredis: miniredis.NewMiniRedis(), registry: r, measures: NewMeasures(r)}
	b.ClockTTL(true)
	t.Cleanup(b.Close)
	return b
}

// redis is a new client, of a replica of its own.
func (b *bubble) redis(t testing.TB) *Redis {
	r, err := NewRedis(RedisOptions{Address: "bubble:6379", TTL: ttl, Measures: b.measures, Dial: b.dial})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

var errDown = errors.New("connection refused")

func (b *bubble) dial(context.Context, string, string) (net.Conn, error) {
	if b.down.Load() {
		return nil, errDown
	}
	return b.Dial()
}

// kill ends the server and its connections; what it held is there again after
// start.
func (b *bubble) kill() {
	b.down.Store(true)
	b.Close()
}

func (b *bubble) start() { b.down.Store(false) }

// hang lets every command wait for longer than anybody does.
func (b *bubble) hang(t testing.TB) {
	b.Server().SetPreHook(func(_ *server.Peer, _ string, _ ...string) bool {
		select {
		case <-t.Context().Done():
		case <-time.After(time.Hour):
		}
		return false
	})
}
