package store

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"heartbed/activescale/store/storetest"
	"heartbed/testbed/testbedtest"
)

// newServer starts a redis-server.
func newServer(t *testing.T, arguments ...string) *storetest.Redis {
	s, err := storetest.Start(t, arguments...)
	testbedtest.Require(t, "netns", err)
	return s
}

// wait tries until there is no error, for a minute.
func wait(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("after a minute: %v", err)
}

// patience is longer than a busy machine stalls: where a test is not about it.
const patience = 30 * time.Second

// connect is a store with a prefix of its own.
func connect(t testing.TB, address string, ttl time.Duration, change ...func(*RedisOptions)) *Redis {
	o := RedisOptions{Address: address, TTL: ttl, Prefix: t.Name() + ":", Timeout: patience}
	for _, c := range change {
		c(&o)
	}
	r, err := NewRedis(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// onServer runs the contract by the clock of a true Redis. Where time must pass
// it is short, but longer than a busy machine stalls.
func onServer(t *testing.T, open func(t testing.TB, ttl time.Duration) Store) {
	for what, check := range checks {
		ttl := time.Minute
		if what == "silent is missing" || what == "a flush renews" {
			ttl = 6 * time.Second
		}
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			check(t, ttl, open(t, ttl))
		})
	}
}

func TestRealRedis(t *testing.T) {
	s := newServer(t)
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		onServer(t, func(t testing.TB, ttl time.Duration) Store { return connect(t, s.Address, ttl) })
	})
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		onServer(t, func(t testing.TB, ttl time.Duration) Store { return NewShared(connect(t, s.Address, ttl)) })
	})
}

// Killed and started anew, empty: errors meanwhile, then all is as before after
// one flush, and streams opened before lose against streams opened after.
func TestRealRedisRestarts(t *testing.T) {
	s := newServer(t)
	r := connect(t, s.Address, time.Minute)
	pod := Pod{"ns", "pod"}
	before, err := r.Open(t.Context())
	require.NoError(t, err)
	put(t, r, pod, sample(before, 1))
	s.Kill()
	_, err = r.Get(t.Context(), []Pod{pod})
	require.Error(t, err)
	require.Error(t, r.Put(t.Context(), pod, sample(before, 2)))
	require.NoError(t, s.Restart(t))
	require.Empty(t, get(t, r, pod))
	put(t, r, pod, sample(before, 3))
	after, err := r.Open(t.Context())
	require.NoError(t, err)
	require.Greater(t, after, before)
	put(t, r, pod, sample(after, 1))
	require.Equal(t, after, get(t, r, pod)[pod].Epoch)
}

// A Redis with no room and no leave to evict refuses writes and answers reads.
func TestRealRedisIsFull(t *testing.T) {
	s := newServer(t)
	r := connect(t, s.Address, time.Minute)
	shared := NewShared(r)
	kept, lost := Pod{"ns", "kept"}, Pod{"ns", "lost"}
	put(t, shared, kept, sample(1, 1))
	require.NoError(t, s.Admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, r.Put(t.Context(), lost, sample(1, 1)), "OOM")
	put(t, shared, kept, sample(1, 2))
	require.ErrorContains(t, shared.Health(), "OOM")
	require.Equal(t, uint64(2), get(t, shared, kept)[kept].Flush)
	_, err := shared.Get(t.Context(), []Pod{kept, lost})
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, s.Admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	put(t, shared, kept, sample(1, 3))
	require.NoError(t, shared.Health())
}

func TestRealRedisIsSlow(t *testing.T) {
	s := newServer(t)
	put(t, connect(t, s.Address, time.Minute), Pod{"ns", "pod"}, sample(1, 1))
	r := connect(t, s.Address, time.Minute, func(o *RedisOptions) { o.Timeout = 500 * time.Millisecond })
	require.NoError(t, s.Admin.Do(t.Context(), "CLIENT", "PAUSE", "3600000", "ALL").Err())
	start := time.Now()
	_, err := r.Get(t.Context(), []Pod{{"ns", "pod"}})
	require.Error(t, err)
	require.GreaterOrEqual(t, time.Since(start), r.Timeout-time.Millisecond)
	s.Kill() // which ends the pause
}

// Keys of one query lie on three nodes, and each is asked once.
func TestRealRedisCluster(t *testing.T) {
	nodes := []*storetest.Redis{}
	for i := range 3 {
		n := newServer(t, "--cluster-enabled", "yes")
		require.NoError(t, n.Admin.ClusterAddSlotsRange(t.Context(), i*5462, min(16383, i*5462+5461)).Err())
		if i > 0 {
			host, port, err := net.SplitHostPort(nodes[0].Address)
			require.NoError(t, err)
			require.NoError(t, n.Admin.ClusterMeet(t.Context(), host, port).Err())
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		wait(t, func() error {
			info, err := n.Admin.ClusterInfo(t.Context()).Result()
			if err == nil && !bytes.Contains([]byte(info), []byte("cluster_state:ok")) {
				err = errors.New(info)
			}
			return err
		})
	}
	t.Run("contract", func(t *testing.T) {
		onServer(t, func(t testing.TB, ttl time.Duration) Store {
			return connect(t, nodes[0].Address+","+nodes[1].Address, ttl)
		})
	})
	r := connect(t, nodes[0].Address, time.Minute, func(o *RedisOptions) { o.Cluster = true })
	pods := make([]Pod, 100)
	for i := range pods {
		pods[i] = Pod{"ns", fmt.Sprint(i)}
		put(t, r, pods[i], sample(1, 1))
	}
	before := testutil.ToFloat64(r.m.exchanges)
	require.Len(t, get(t, r, pods...), 100)
	require.Equal(t, before+3, testutil.ToFloat64(r.m.exchanges))
	// Half an answer is none.
	nodes[2].Kill()
	_, err := r.Get(t.Context(), pods)
	require.Error(t, err)
}

func TestRedisWithPassword(t *testing.T) {
	m := miniredis.RunT(t)
	m.RequireUserAuth("user", "secret")
	for password, want := range map[string]string{"secret": "", "wrong": "WRONGPASS", "": "NOAUTH"} {
		r, err := NewRedis(RedisOptions{Address: m.Addr(), TTL: ttl, Timeout: patience, Username: "user", Password: password})
		require.NoError(t, err)
		_, err = r.Open(t.Context())
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, r.Close())
	}
}

func TestRedisOverTLS(t *testing.T) {
	certificate, pool := selfSigned(t)
	m := miniredis.NewMiniRedis()
	require.NoError(t, m.StartTLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	t.Cleanup(m.Close)
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"trusted": {&tls.Config{RootCAs: pool}, ""},
		"unknown": {&tls.Config{}, "certificate"},
	} {
		r, err := NewRedis(RedisOptions{Address: m.Addr(), TTL: ttl, Timeout: patience, TLS: c.config})
		require.NoError(t, err)
		err = r.Put(t.Context(), Pod{"ns", "pod"}, sample(1, 1))
		if c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
		require.NoError(t, r.Close())
	}
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
