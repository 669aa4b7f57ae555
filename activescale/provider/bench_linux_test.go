package provider

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"heartbed/activescale/store"
	"heartbed/activescale/store/storetest"
)

// BenchmarkQuery measures what an HPA waits for: a query for 100 pods while
// 1,000 HPAs ask every 15 s, each at its own moment (paced: 67 queries a
// second, measured from when they were due), or as fast as the five workers of
// the HPA controller can (saturated). All the while 5,000 pods in one namespace
// flush every 5 s. Kubernetes issue 96242: at 100 ms a metric, 1,000 HPAs came
// to 120 s between syncs.
//
// Beside it stands the design of anyflow/activescale in round trips on the same
// Redis: two reads of each pod, one after the other, and a write for the
// heartbeat and each metric. (That it lists pods at the API server for each
// query is left out.)
//
// Each line runs for a fixed time, whatever -benchtime says.
func BenchmarkQuery(b *testing.B) {
	f := newFleet(b)
	local := store.NewLocal(time.Minute)
	f.measure(b, "local", local.Put, f.provider(local), nil)
	server, err := storetest.Start(b)
	if err != nil {
		b.Skipf("the rest needs a Redis: %v", err)
	}
	registry := prometheus.NewRegistry()
	reader, writer := connect(b, server.Address, store.NewMeasures(registry)), connect(b, server.Address, nil)
	trips := func() float64 { return exchanges(b, registry) }
	p := New(Options{Store: reader, Pods: f.options().Pods})
	f.measure(b, "redis", writer.Put, f.provider(reader), trips)
	f.measure(b, "redis-http", writer.Put, f.overHTTP(b, p), trips)
	s := &sequential{client: redis.NewClient(&redis.Options{Addr: server.Address, MaxRetries: -1})}
	defer func() { _ = s.client.Close() }()
	f.measure(b, "anyflow-modelled", s.flush, s.query, func() float64 { return float64(s.trips.Load()) })
}

const (
	hpas       = 1000
	askEvery   = 15 * time.Second
	apps       = 50
	podsOfApp  = 100
	flushEvery = 5 * time.Second
	paced      = 8 * time.Second // how long the lines run
	saturated  = 2 * time.Second
	workers    = 5 // concurrent syncs of the HPA controller, its default
)

// fleet is 50 deployments of 100 pods.
type fleet struct {
	*cluster
	apps  [apps][]store.Pod
	flush atomic.Uint64 // of all pods together
}

func newFleet(b *testing.B) *fleet {
	f := &fleet{cluster: newCluster()}
	for app := range apps {
		for i := range podsOfApp {
			pod := f.pod(b, fmt.Sprintf("app-%d-6c9d8b7f5-%05d", app, i), label("app", appName(app)))
			f.apps[app] = append(f.apps[app], key(pod))
		}
	}
	return f
}

func appName(app int) string { return fmt.Sprint("app-", app) }

func connect(b *testing.B, address string, m *store.Measures) *store.Redis {
	r, err := store.NewRedis(store.RedisOptions{Address: address, TTL: time.Minute, Timeout: 10 * time.Second, Measures: m})
	require.NoError(b, err)
	b.Cleanup(func() { _ = r.Close() })
	return r
}

func exchanges(b *testing.B, r *prometheus.Registry) float64 {
	families, err := r.Gather()
	require.NoError(b, err)
	for _, f := range families {
		if f.GetName() == "activescale_store_redis_exchanges_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// A question asks for an app and gives the number of values.
type question func(ctx context.Context, pods []store.Pod, app int) (int, error)

func (f *fleet) provider(s store.Store) question {
	p := New(Options{Store: s, Pods: f.options().Pods})
	return func(ctx context.Context, _ []store.Pod, app int) (int, error) {
		selector := labels.SelectorFromSet(labels.Set{"app": appName(app)})
		list, err := p.GetMetricBySelector(ctx, "shop", selector, info(store.InboundActiveRequests), labels.Everything())
		if err != nil {
			return 0, err
		}
		return len(list.Items), nil
	}
}

// overHTTP goes through the library's API server, all but TLS and
// authentication; only the size of the answer is looked at.
func (f *fleet) overHTTP(b *testing.B, p *Provider) question {
	address := serve(b, p)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	b.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context, _ []store.Pod, app int) (int, error) {
		path := address + group + "v1beta2/namespaces/shop/pods/*/" + store.InboundActiveRequests + "?labelSelector=" + url.QueryEscape("app="+appName(app))
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if err != nil {
			return 0, err
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		body, err := io.ReadAll(response.Body)
		if err := response.Body.Close(); err != nil {
			return 0, err
		}
		if response.StatusCode != http.StatusOK || len(body) < 200*podsOfApp {
			return 0, fmt.Errorf("status %d, %d bytes", response.StatusCode, len(body))
		}
		return podsOfApp, err
	}
}

// measure runs both loads, each with the pods' flushes beside it.
func (f *fleet) measure(b *testing.B, name string, put func(context.Context, store.Pod, store.Sample) error, ask question, trips func() float64) {
	for _, load := range []struct {
		name string
		run  func(*testing.B, question) []time.Duration
	}{{"paced", f.paced}, {"saturated", f.saturated}} {
		b.Run(name+"/"+load.name, func(b *testing.B) {
			stop := f.push(b, put)
			defer stop()
			before := 0.0
			if trips != nil {
				before = trips()
			}
			start, worked := time.Now(), cpu(b)
			took := load.run(b, ask)
			b.ReportMetric((cpu(b)-worked).Seconds()*1000/float64(len(took)), "cpu-ms/query")
			b.ReportMetric(float64(len(took))/time.Since(start).Seconds(), "queries/s")
			if trips != nil {
				b.ReportMetric((trips()-before)/float64(len(took)), "round-trips/query")
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
			b.ReportMetric(0, "ns/op") // a line is no operation
		})
	}
}

// cpu is what this process has used; the pushes beside the queries use some. It
// holds on a busy machine, where latencies say more of the others.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// push lets every pod flush once, and then at its pace until stop.
func (f *fleet) push(b *testing.B, put func(context.Context, store.Pod, store.Sample) error) (stop func()) {
	const pushers = 8
	var wait sync.WaitGroup
	values := map[string]float64{store.InboundActiveRequests: 10, store.OutboundActiveRequests: 0, store.ActiveConnections: 20}
	one := func(app, i int) {
		s := store.Sample{Epoch: 1, Flush: f.flush.Add(1), At: time.Now(), Values: values}
		if err := put(context.Background(), f.apps[app][i], s); err != nil {
			b.Errorf("put: %v", err)
		}
	}
	for app := range apps {
		wait.Go(func() {
			for i := range podsOfApp {
				one(app, i)
			}
		})
	}
	wait.Wait()
	done := make(chan struct{})
	for w := range pushers {
		wait.Go(func() {
			tick := time.NewTicker(flushEvery / (apps * podsOfApp / pushers))
			defer tick.Stop()
			for n := w; ; n += pushers {
				select {
				case <-tick.C:
					one(n/podsOfApp%apps, n%podsOfApp)
				case <-done:
					return
				}
			}
		})
	}
	return func() {
		close(done)
		wait.Wait()
	}
}

// paced asks for every HPA at its own phase of 15 s.
func (f *fleet) paced(b *testing.B, ask question) []time.Duration {
	random := rand.New(rand.NewPCG(1, 2))
	due := make([]time.Duration, hpas)
	for i := range due {
		due[i] = time.Duration(random.Int64N(int64(askEvery)))
	}
	slices.Sort(due)
	due = slices.DeleteFunc(due, func(d time.Duration) bool { return d > paced })
	took, start := make([]time.Duration, len(due)), time.Now()
	var wait sync.WaitGroup
	for i, d := range due {
		time.Sleep(time.Until(start.Add(d)))
		wait.Go(func() {
			f.one(b, ask, i%apps)
			took[i] = time.Since(start) - d
		})
	}
	wait.Wait()
	return took
}

func (f *fleet) saturated(b *testing.B, ask question) []time.Duration {
	var mu sync.Mutex
	var wait sync.WaitGroup
	var all []time.Duration
	end := time.Now().Add(saturated)
	for w := range workers {
		wait.Go(func() {
			var took []time.Duration
			for app := w; time.Now().Before(end); app++ {
				start := time.Now()
				f.one(b, ask, app%apps)
				took = append(took, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
		})
	}
	wait.Wait()
	return all
}

func (f *fleet) one(b *testing.B, ask question, app int) {
	if n, err := ask(b.Context(), f.apps[app], app); err != nil || n != podsOfApp {
		b.Errorf("%d values, error %v", n, err)
	}
}

// sequential is the design of anyflow/activescale in round trips.
type sequential struct {
	client *redis.Client
	trips  atomic.Int64 // of queries
}

const heartbeat = "__heartbeat"

func (s *sequential) key(pod store.Pod, metric string) string {
	return "modelled:" + pod.String() + ":" + metric
}

func (s *sequential) flush(ctx context.Context, pod store.Pod, sample store.Sample) error {
	if err := s.client.Set(ctx, s.key(pod, heartbeat), "1", time.Minute).Err(); err != nil {
		return err
	}
	for name, v := range sample.Values {
		if err := s.client.Set(ctx, s.key(pod, name), strconv.FormatFloat(v, 'f', 6, 64), time.Minute).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sequential) query(ctx context.Context, pods []store.Pod, _ int) (n int, err error) {
	for _, pod := range pods {
		for _, name := range []string{heartbeat, store.InboundActiveRequests} {
			s.trips.Add(1)
			if err := s.client.Get(ctx, s.key(pod, name)).Err(); err != nil {
				return n, err
			}
		}
		n++
	}
	return n, nil
}
