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
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

// redisServer is a redis-server of the machine.
type redisServer struct {
	address string
	args    []string
	process *exec.Cmd
	log     bytes.Buffer
	admin   *redis.Client
}

// newServer starts one without persistence, with more arguments.
func newServer(t *testing.T, args ...string) *redisServer {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		err = fmt.Errorf("%w: redis-server is not installed (apt-get install redis-server)", errors.ErrUnsupported)
	}
	testbedtest.Require(t, "netns", err)
	port := freePort(t)
	s := &redisServer{address: "127.0.0.1:" + port}
	s.args = append([]string{program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, args...)
	s.admin = redis.NewClient(&redis.Options{Addr: s.address, MaxRetries: -1})
	t.Cleanup(func() {
		_ = s.admin.Close()
		s.kill()
	})
	s.start(t)
	return s
}

// freePort leaves room for the port of a cluster's bus, which is 10,000 above.
func freePort(t *testing.T) string {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		require.NoError(t, l.Close())
		if port < 50_000 {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no free port below 50000")
	return ""
}

func (s *redisServer) start(t *testing.T) {
	s.process = exec.Command(s.args[0], s.args[1:]...)
	s.process.Stdout, s.process.Stderr, s.process.SysProcAttr = &s.log, &s.log, diesWithUs()
	require.NoError(t, s.process.Start())
	wait(t, func() error { return s.admin.Ping(t.Context()).Err() })
}

func (s *redisServer) kill() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		s.process = nil
	}
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

// open is a store with a prefix of its own.
func (s *redisServer) open(t testing.TB, ttl time.Duration, change ...func(*RedisOptions)) *Redis {
	o := RedisOptions{Address: s.address, TTL: ttl, Prefix: t.Name() + ":", Timeout: 10 * time.Second}
	for _, c := range change {
		c(&o)
	}
	r, err := NewRedis(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func quick(o *RedisOptions) { o.Timeout = 500 * time.Millisecond }

// The contract by the clock of a true Redis. A sample must outlive a stall of
// this machine between a put and a get, so the time to live is long.
func TestRealRedis(t *testing.T) {
	s := newServer(t)
	const ttl = 4 * time.Second
	for name, open := range map[string]func(testing.TB) Store{
		"redis":  func(t testing.TB) Store { return s.open(t, ttl) },
		"shared": func(t testing.TB) Store { return NewShared(s.open(t, ttl)) },
	} {
		for what, check := range checks {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				check(t, ttl, open(t))
			})
		}
	}
}

// Killed and started anew, empty: errors meanwhile, then all is as before after
// one flush, and streams opened before lose against streams opened after.
func TestRealRedisRestarts(t *testing.T) {
	s := newServer(t)
	r := s.open(t, time.Minute, quick)
	pod := Pod{"ns", "pod"}
	before, err := r.Open(t.Context())
	require.NoError(t, err)
	put(t, r, pod, sample(before, 1))
	s.kill()
	_, err = r.Get(t.Context(), []Pod{pod})
	require.Error(t, err)
	require.Error(t, r.Put(t.Context(), pod, sample(before, 2)))
	s.start(t)
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
	r := s.open(t, time.Minute, quick)
	shared := NewShared(r)
	kept, lost := Pod{"ns", "kept"}, Pod{"ns", "lost"}
	put(t, shared, kept, sample(1, 1))
	require.NoError(t, s.admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, r.Put(t.Context(), lost, sample(1, 1)), "OOM")
	put(t, shared, kept, sample(1, 2))
	require.ErrorContains(t, shared.Health(), "OOM")
	require.Equal(t, uint64(2), get(t, shared, kept)[kept].Flush)
	_, err := shared.Get(t.Context(), []Pod{kept, lost})
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, s.admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	put(t, shared, kept, sample(1, 3))
	require.NoError(t, shared.Health())
}

func TestRealRedisIsSlow(t *testing.T) {
	s := newServer(t)
	r := s.open(t, time.Minute, quick)
	pod := Pod{"ns", "pod"}
	put(t, r, pod, sample(1, 1))
	require.NoError(t, s.admin.Do(t.Context(), "CLIENT", "PAUSE", "3600000", "ALL").Err())
	start := time.Now()
	_, err := r.Get(t.Context(), []Pod{pod})
	require.Error(t, err)
	require.GreaterOrEqual(t, time.Since(start), r.Timeout-time.Millisecond)
	s.kill() // which ends the pause
}

// Keys of one query lie on three nodes, and each is asked once.
func TestRealRedisCluster(t *testing.T) {
	nodes := []*redisServer{}
	for i := range 3 {
		n := newServer(t, "--cluster-enabled", "yes")
		require.NoError(t, n.admin.ClusterAddSlotsRange(t.Context(), i*5462, min(16383, i*5462+5461)).Err())
		if i > 0 {
			host, port, err := net.SplitHostPort(nodes[0].address)
			require.NoError(t, err)
			require.NoError(t, n.admin.ClusterMeet(t.Context(), host, port).Err())
		}
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		wait(t, func() error {
			info, err := n.admin.ClusterInfo(t.Context()).Result()
			if err == nil && !bytes.Contains([]byte(info), []byte("cluster_state:ok")) {
				err = errors.New(info)
			}
			return err
		})
	}
	addresses := nodes[0].address + "," + nodes[1].address
	t.Run("contract", func(t *testing.T) {
		for what, check := range checks {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				check(t, 4*time.Second, nodes[0].open(t, 4*time.Second, func(o *RedisOptions) { o.Address = addresses }))
			})
		}
	})
	r := nodes[0].open(t, time.Minute, func(o *RedisOptions) { o.Cluster = true; o.Timeout = 2 * time.Second })
	pods := make([]Pod, 100)
	for i := range pods {
		pods[i] = Pod{"ns", fmt.Sprint(i)}
		put(t, r, pods[i], sample(1, 1))
	}
	before := testutil.ToFloat64(r.m.exchanges)
	require.Len(t, get(t, r, pods...), 100)
	require.Equal(t, before+3, testutil.ToFloat64(r.m.exchanges))
	// Half an answer is none.
	nodes[2].kill()
	_, err := r.Get(t.Context(), pods)
	require.Error(t, err)
}

func TestRedisWithPassword(t *testing.T) {
	m := miniredis.RunT(t)
	m.RequireUserAuth("user", "secret")
	for password, want := range map[string]string{"secret": "", "wrong": "WRONGPASS", "": "NOAUTH"} {
		r, err := NewRedis(RedisOptions{Address: m.Addr(), TTL: ttl, Username: "user", Password: password})
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
		r, err := NewRedis(RedisOptions{Address: m.Addr(), TTL: ttl, TLS: c.config})
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
