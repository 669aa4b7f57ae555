package prom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed/testbedtest"
)

// every is the scrape interval of the tests.
const every = 200 * time.Millisecond

// slots is how many exporters the Prometheus that tests share scrapes. They
// are there from the start, because it takes 5 s to notice a new one.
const slots = 24

// idle is a page without metrics.
const idle = "# none\n"

// exporter serves text that a test gives it. All its series get the label case
// with the test's name.
type exporter struct {
	*httptest.Server
	mu    sync.Mutex
	test  string
	pages []string // one a scrape; "" = the scrape fails
	after string   // what is served when there are no more pages
	asked int
}

func newExporter() *exporter {
	e := &exporter{after: idle}
	e.Server = httptest.NewServer(e)
	return e
}

func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	page := e.after
	if e.asked < len(e.pages) {
		page = e.pages[e.asked]
	}
	e.asked++
	if page == "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, strings.ReplaceAll(page, "{", fmt.Sprintf("{case=%q,", e.test)))
}

// play serves one page a scrape from now on, then none: scrapes fail.
func (e *exporter) play(pages ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pages, e.after, e.asked = pages, "", 0
}

// hold serves the same page from now on.
func (e *exporter) hold(page string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pages, e.after, e.asked = nil, page, 0
}

// wait returns when the exporter has been scraped n times since play or hold,
// and Prometheus has stored what it got.
func (e *exporter) wait(t testing.TB, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(every / 4) {
		if e.scrapes() > n { // the one after the last
			return
		}
	}
	t.Fatalf("%s was scraped %d times in a minute, expected %d", e.URL, e.scrapes(), n+1)
}

func (e *exporter) scrapes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// played returns when all pages were scraped and stored.
func (e *exporter) played(t *testing.T) { t.Helper(); e.wait(t, len(e.pages)) }

// server is a real Prometheus and the exporters that it scrapes.
type server struct {
	URL       string
	exporters []*exporter
	free      chan *exporter
	command   *exec.Cmd
	log       *strings.Builder
	ended     chan error
}

// launch starts Prometheus on a folder and waits until it is ready. Each of
// the exporters is a target that is scraped so often; more is added to its
// config.
func launch(dir string, exporters []*exporter, every time.Duration, more string) (*server, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, fmt.Errorf("%w: no prometheus in PATH (apt-get install prometheus): %w", errors.ErrUnsupported, err)
	}
	config := fmt.Sprintf("global: {scrape_interval: %v, scrape_timeout: %v}\nscrape_configs:\n"+
		"- job_name: slots\n  honor_labels: true\n  static_configs:\n  - targets: [", every, every)
	for _, e := range exporters {
		config += strings.TrimPrefix(e.URL, "http://") + ", "
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config+"]\n"+more), 0o644); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{URL: "http://" + l.Addr().String(), exporters: exporters, log: &strings.Builder{}, ended: make(chan error, 1)}
	l.Close()
	s.command = exec.Command(program, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", l.Addr().String(), "--log.level=warn")
	s.command.Stdout, s.command.Stderr = s.log, s.log
	s.command.SysProcAttr = diesWithUs()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // it dies with this thread
		err := s.command.Start()
		if started <- err; err == nil {
			s.ended <- s.command.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	for range 600 {
		resp, err := http.Get(s.URL + "/-/ready")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.kill()
	return nil, fmt.Errorf("Prometheus does not become ready: %s", s.log)
}

// kill ends Prometheus; a second time does nothing.
func (s *server) kill() {
	_ = s.command.Process.Kill() // an error says that it has ended
	s.ended <- <-s.ended
}

// start runs a Prometheus of the test's own.
func start(t *testing.T, more string) *server {
	t.Helper()
	e := newExporter()
	e.test = t.Name()
	t.Cleanup(e.Close)
	s, err := launch(t.TempDir(), []*exporter{e}, every, more)
	testbedtest.Require(t, "kind", err)
	t.Cleanup(s.kill)
	return s
}

// shared is the Prometheus of most tests.
var shared struct {
	once sync.Once
	*server
	err error
	dir string
}

// prometheus gives the one that tests share. Without the program the test is
// skipped.
func prometheus(t *testing.T) *server {
	t.Helper()
	shared.once.Do(func() {
		var exporters []*exporter
		free := make(chan *exporter, slots)
		for range slots {
			e := newExporter()
			exporters = append(exporters, e)
			free <- e
		}
		if shared.dir, shared.err = os.MkdirTemp("", "heartbed-prom"); shared.err != nil {
			return
		}
		if shared.server, shared.err = launch(shared.dir, exporters, every, ""); shared.err == nil {
			shared.free = free
		}
	})
	testbedtest.Require(t, "kind", shared.err)
	return shared.server
}

func TestMain(m *testing.M) {
	if text := os.Getenv(asJob); text != "" {
		if err := do(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if shared.server != nil {
		shared.kill()
		for _, e := range shared.exporters {
			e.Close()
		}
	}
	os.RemoveAll(shared.dir)
	os.Exit(code)
}

// exporter takes one of the targets for the test.
func (s *server) exporter(t *testing.T) *exporter {
	e := <-s.free
	e.mu.Lock()
	e.test = t.Name()
	e.mu.Unlock()
	t.Cleanup(func() {
		e.hold(idle)
		s.free <- e
	})
	return e
}

// pair is a topology: a calls b, two replicas each, on two nodes.
func pair() heart.Topology {
	return heart.Topology{
		Nodes: []heart.Node{{Name: "n1"}, {Name: "n2"}},
		Replicas: []heart.Replica{
			{Name: "a1", Component: "a", Node: "n1"}, {Name: "a2", Component: "a", Node: "n2"},
			{Name: "b1", Component: "b", Node: "n1"}, {Name: "b2", Component: "b", Node: "n2"},
		},
		Calls: []heart.Call{{From: "a", To: "b"}},
	}
}

// config observes the test's own series over 30 s by the presets; istio and
// cadvisor also ask for a namespace.
func (s *server) config(t *testing.T, cpu, requests string) Config {
	query := func(preset string) Query {
		q := Query{Preset: preset, Match: map[string]string{"case": t.Name()}}
		if preset != ours {
			q.Match["namespace"] = "shop"
		}
		return q
	}
	return Config{Address: s.URL, MaxAge: model.Duration(time.Minute), CPU: query(cpu), Requests: query(requests)}
}

// observer makes one of a topology.
func observer(t *testing.T, c Config, topology heart.Topology) *Observer {
	t.Helper()
	o, err := New(c, constant(topology))
	require.NoError(t, err)
	return o
}

func constant(topology heart.Topology) TopologyFunc {
	return func(context.Context) (heart.Topology, error) { return topology, nil }
}

func observe(t *testing.T, c Config) heart.Observation {
	t.Helper()
	o, err := observer(t, c, pair()).Observe(t.Context())
	require.NoError(t, err)
	return o
}

// refused is the error of an observation.
func refused(t *testing.T, c Config) error {
	t.Helper()
	_, err := observer(t, c, pair()).Observe(t.Context())
	require.Error(t, err)
	return err
}

// ourPage is what one of our exporters shows: CPU seconds and requests by
// caller.
func ourPage(replica string, cpu float64, requests map[string]float64) string {
	page := fmt.Sprintf("heartbed_cpu_seconds_total{replica=%q} %g\n", replica, cpu)
	for caller, n := range requests {
		page += fmt.Sprintf("heartbed_requests_total{replica=%q,caller_replica=%q,code=\"OK\"} %g\n", replica, caller, n)
	}
	return page
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
