package netns

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"heartbed/testbed"
)

// scrapeLimit is how long an exporter may take. One that is throttled answers
// late; one that does not answer in time is absent from the scrape.
const scrapeLimit = 2 * time.Second

// scraper reads the exporters of all replicas and keeps what an observation
// can need.
type scraper struct {
	replicas           []replicaLayout
	every, window, lag time.Duration
	http               *http.Client

	mu   sync.Mutex
	kept []counters // oldest first
}

func newScraper(l layout, namespace string) *scraper {
	s := &scraper{replicas: l.replicas}
	s.every, s.window, s.lag = windows(l.plan.Control)
	s.http = &http.Client{Timeout: scrapeLimit, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dialIn(ctx, namespace, addr) },
	}}
	return s
}

// readAll scrapes all replicas.
func (s *scraper) readAll(ctx context.Context) counters { return s.read(ctx, s.replicas) }

// read scrapes replicas now, at the same time.
func (s *scraper) read(ctx context.Context, replicas []replicaLayout) counters {
	c := counters{at: time.Now(), of: map[string]reading{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, r := range replicas {
		all.Go(func() {
			if got, err := s.readOne(ctx, r); err == nil {
				mu.Lock()
				defer mu.Unlock()
				c.of[r.Name] = got
			}
		})
	}
	all.Wait()
	return c
}

func (s *scraper) readOne(ctx context.Context, r replicaLayout) (reading, error) {
	url := "http://" + netip.AddrPortFrom(r.addr, metricsPort).String() + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return reading{}, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return reading{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return reading{}, fmt.Errorf("%s: status %s", url, resp.Status)
	}
	return parse(resp.Body)
}

// Names of the metrics and labels of a replica.
const (
	cpuMetric     = "heartbed_cpu_seconds_total"
	requestMetric = "heartbed_requests_total"
	callerLabel   = "caller_replica"
	codeLabel     = "code"
	codeOK        = "OK"
)

// parse reads a replica's metrics. A replica that shows no CPU time is an
// error: idle and unknown are not the same.
func parse(r io.Reader) (reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return reading{}, fmt.Errorf("parse metrics: %w", err)
	}
	cpu := families[cpuMetric].GetMetric()
	if len(cpu) != 1 {
		return reading{}, fmt.Errorf("metrics: found %d of %s, expected one", len(cpu), cpuMetric)
	}
	got := reading{cpuSeconds: cpu[0].GetCounter().GetValue(), answered: map[string]float64{}, requests: map[string]float64{}}
	for _, m := range families[requestMetric].GetMetric() {
		caller, n := label(m, callerLabel), m.GetCounter().GetValue()
		got.requests[caller] += n
		if label(m, codeLabel) == codeOK {
			got.answered[caller] += n
		}
	}
	return got, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// loop scrapes every interval until ctx ends, the first time at once.
func (s *scraper) loop(ctx context.Context) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		c := s.readAll(ctx)
		if ctx.Err() != nil {
			return // half a scrape
		}
		s.keep(c)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// keep stores a scrape and forgets what is too old for any window.
func (s *scraper) keep(c counters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, c)
	oldest := c.at.Add(-s.window - s.lag - 2*s.every)
	for len(s.kept) > 2 && s.kept[0].at.Before(oldest) {
		s.kept = s.kept[1:]
	}
}

// recent are the scrapes of the newest window.
func (s *scraper) recent(now time.Time) []counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]counters(nil), choose(s.kept, now, s.window, s.lag)...)
}

// usable is how many cores a replica may use: its threads or its quota.
func usable(p testbed.Plan, node testbed.Node) float64 {
	cores := p.App.Server.Threads
	if limit := p.App.Server.LimitCores; limit > 0 {
		cores = min(cores, limit, node.Cores)
	}
	return cores
}
