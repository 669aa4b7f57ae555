package live

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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

// Scraper reads the exporters of all replicas and keeps what an observation
// can need.
type Scraper struct {
	replicas           []Replica
	every, window, lag time.Duration
	http               *http.Client

	mu   sync.Mutex
	kept []Counters // oldest first
}

// NewScraper makes a scraper of replicas. dial opens the connections from
// where the controller stands.
func NewScraper(replicas []Replica, c testbed.Control, dial DialFunc) *Scraper {
	s := &Scraper{replicas: replicas}
	s.every, s.window, s.lag = windows(c)
	s.http = &http.Client{Timeout: scrapeLimit, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, addr) },
	}}
	return s
}

// DialFunc opens a TCP connection to an address, not a name.
type DialFunc func(ctx context.Context, addr string) (net.Conn, error)

// ReadAll scrapes all replicas.
func (s *Scraper) ReadAll(ctx context.Context) Counters { return s.read(ctx, s.replicas) }

// read scrapes replicas now, at the same time.
func (s *Scraper) read(ctx context.Context, replicas []Replica) Counters {
	c := Counters{At: time.Now(), Of: map[string]Reading{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, r := range replicas {
		all.Go(func() {
			if got, err := s.ReadOne(ctx, r); err == nil {
				mu.Lock()
				defer mu.Unlock()
				c.Of[r.Name] = got
			}
		})
	}
	all.Wait()
	return c
}

// ReadOne scrapes one replica.
func (s *Scraper) ReadOne(ctx context.Context, r Replica) (Reading, error) {
	url := "http://" + netip.AddrPortFrom(r.Addr, MetricsPort).String() + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Reading{}, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return Reading{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Reading{}, fmt.Errorf("%s: status %s", url, resp.Status)
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
func parse(r io.Reader) (Reading, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return Reading{}, fmt.Errorf("parse metrics: %w", err)
	}
	cpu := families[cpuMetric].GetMetric()
	if len(cpu) != 1 {
		return Reading{}, fmt.Errorf("metrics: found %d of %s, expected one", len(cpu), cpuMetric)
	}
	got := Reading{CPUSeconds: cpu[0].GetCounter().GetValue(), Answered: map[string]float64{}, Requests: map[string]float64{}}
	for _, m := range families[requestMetric].GetMetric() {
		caller, n := label(m, callerLabel), m.GetCounter().GetValue()
		got.Requests[caller] += n
		if label(m, codeLabel) == codeOK {
			got.Answered[caller] += n
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

// Close lets go of the connections.
func (s *Scraper) Close() { s.http.CloseIdleConnections() }

// loop scrapes every interval until ctx ends, the first time at once.
func (s *Scraper) loop(ctx context.Context) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	for {
		c := s.ReadAll(ctx)
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
func (s *Scraper) keep(c Counters) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, c)
	oldest := c.At.Add(-s.window - s.lag - 2*s.every)
	for len(s.kept) > 2 && s.kept[0].At.Before(oldest) {
		s.kept = s.kept[1:]
	}
}

// recent are the scrapes of the newest window.
func (s *Scraper) recent(now time.Time) []Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Counters(nil), choose(s.kept, now, s.window, s.lag)...)
}

// usable is how many cores a replica may use: its threads or its quota.
func usable(p testbed.Plan, node testbed.Node) float64 {
	cores := p.App.Server.Threads
	if limit := p.App.Server.LimitCores; limit > 0 {
		cores = min(cores, limit, node.Cores)
	}
	return cores
}

// AwaitReplicas waits until every replica shows its metrics.
func (s *Session) AwaitReplicas(ctx context.Context) error {
	missing := s.Layout.Replicas
	for {
		counters := s.Scraper.read(ctx, missing)
		missing = slices.DeleteFunc(slices.Clone(missing), func(r Replica) bool {
			_, here := counters.Of[r.Name]
			return here
		})
		if len(missing) == 0 {
			return nil
		}
		if err := Pause(ctx, 20*time.Millisecond); err != nil {
			var names []string
			for _, r := range missing {
				names = append(names, r.Name)
			}
			return fmt.Errorf("no metrics yet of %s: %w", strings.Join(names, ", "), err)
		}
	}
}
