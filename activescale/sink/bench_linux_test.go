package sink

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"heartbed/activescale/store"
	"heartbed/workloads/push"
)

// actAsProxies turns the test binary into many proxies; the value is the
// receiver's address.
const actAsProxies = "HEARTBED_TEST_PROXIES"

func init() { helpers[actAsProxies] = proxies }

// What BenchmarkStreams offers: a cluster's proxies, each with some hundred
// metrics, as many as Istio's inclusion list lets through.
const (
	benchStreams = 5000
	benchEvery   = 5 * time.Second
	benchNoise   = 100
	benchFlushes = 4 // the time that is measured
)

// proxies pushes from many proxies, one connection each and evenly spread over
// an interval, until its input ends.
func proxies(addr string) error {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range benchStreams {
		o := push.Options{
			Target: addr, Pod: "pod-" + strconv.Itoa(i), Namespace: "bench", Every: benchEvery, Noise: benchNoise,
			First: benchEvery * time.Duration(i+1) / benchStreams,
			Dial:  []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(16 << 10)},
			Read: func() push.Values {
				return push.Values{
					Inbound: push.Requests{Active: int64(i % 10), Begun: 1000, Ended: 900, Time: time.Minute}, Connections: 4, Accepted: 4,
				}
			},
		}
		running.Go(func() {
			if err := push.Run(ctx, o); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	running.Wait()
	return nil
}

// clocked notes how long after the sender took it each sample was visible.
type clocked struct {
	store.Store
	mu    sync.Mutex
	after []time.Duration
}

func (c *clocked) Put(ctx context.Context, pod store.Pod, s store.Sample) error {
	err := c.Store.Put(ctx, pod, s)
	took := time.Since(s.At)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = append(c.after, took)
	return err
}

// reset begins anew and gives what was noted, in order of length.
func (c *clocked) reset() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := c.after
	c.after = nil
	slices.Sort(after)
	return after
}

// BenchmarkStreams receives from 5,000 proxies, which run in another process,
// and prints what this process needs for it: cores, resident memory, and the
// time from a proxy's flush until the store has the sample, of which
// DefaultQuiet is the wait for further messages. On a busy machine the latter
// says more about the machine: how late a sleeper wakes stands beside it.
//
//	go test -run - -bench Streams ./activescale/sink
func BenchmarkStreams(b *testing.B) {
	needFiles(b, benchStreams+100)
	for range b.N {
		samples := &clocked{Store: store.NewLocal(4 * benchEvery)}
		r := receive(b, Options{Store: samples, Mean: true}, Transport{})
		stop := startProxies(b, r.addr)
		require.Eventually(b, func() bool { return len(r.Streams()) == benchStreams }, 3*time.Minute, 100*time.Millisecond)
		time.Sleep(benchEvery / 2) // what opening them has left behind
		samples.reset()
		cpu, start := used(b), time.Now()
		late := sleeps(benchFlushes * benchEvery)
		took := time.Since(start)
		cores := (used(b) - cpu).Seconds() / took.Seconds()
		after := samples.reset()
		b.ReportMetric(cores*100, "%core")
		b.ReportMetric(resident(b), "MB")
		b.ReportMetric(percentile(after, 50), "p50-visible-ms")
		b.ReportMetric(percentile(after, 99), "p99-visible-ms")
		b.ReportMetric(percentile(late, 99), "p99-wake-ms")
		b.ReportMetric(float64(len(after))/took.Seconds(), "flushes/s")
		b.ReportMetric(0, "ns/op")
		require.Len(b, r.Streams(), benchStreams)
		stop()
	}
}

// sleeps passes the time in short sleeps and gives how late each ended, in
// order of length.
func sleeps(total time.Duration) (late []time.Duration) {
	const each = 20 * time.Millisecond
	for range total / each {
		start := time.Now()
		time.Sleep(each)
		late = append(late, time.Since(start)-each)
	}
	slices.Sort(late)
	return late
}

// percentile of sorted times, in ms.
func percentile(sorted []time.Duration, p int) float64 {
	return float64(sorted[(len(sorted)-1)*p/100].Microseconds()) / 1000
}

// startProxies starts the other process; the returned function ends it.
func startProxies(b *testing.B, addr string) (stop func()) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), actAsProxies+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	var once sync.Once
	stop = func() { once.Do(func() { in.Close(); require.NoError(b, cmd.Wait()) }) }
	b.Cleanup(stop)
	return stop
}

// needFiles makes sure that the process may open so many.
func needFiles(b *testing.B, n uint64) {
	var limit syscall.Rlimit
	require.NoError(b, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < n {
		b.Skipf("may open %d files, needs %d: raise it with ulimit -n", limit.Cur, n)
	}
}

// used is this process's CPU time.
func used(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is this process's memory in MB (2^20 bytes).
func resident(b *testing.B) float64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		b.Skipf("no /proc: %v", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kb, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 64)
			require.NoError(b, err)
			return n / 1024
		}
	}
	b.Fatal("no VmRSS line")
	return 0
}
