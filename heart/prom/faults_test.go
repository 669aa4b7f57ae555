package prom

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// Two scrapes of both replicas of b, as far as a test is about something else.
func playBoth(t *testing.T, e *exporter) {
	both := func(cpu, n float64) string {
		callers := map[string]float64{"a1": n}
		return ourPage("b1", cpu, callers) + ourPage("b2", cpu, callers)
	}
	e.play(both(1, 10), both(2, 30))
	e.played(t)
}

// prometheus/prometheus#8001, #3194: a window that holds one scrape shows
// nothing.
func TestWindowOfOneScrape(t *testing.T) {
	p := prometheus(t)
	e := p.exporter(t)
	playBoth(t, e)
	c := p.config(t, ours, ours)
	c.Window = model.Duration(every / 2)
	require.Regexp(t, `no replica was observed at .*fewer than two samples in a window of 100ms \(they come every \d+ms\)`, refused(t, c).Error())

	c.Window = model.Duration(3 * every)
	require.Regexp(t, `a window of 600ms holds fewer than 4 samples, which come every \d+ms`, strings.Join(observe(t, c).Warnings, "\n"))
	c.Window = model.Duration(time.Minute)
	require.NotContains(t, strings.Join(observe(t, c).Warnings, "\n"), "holds fewer than")
}

func TestNothingIsScraped(t *testing.T) {
	p := prometheus(t)
	c := p.config(t, ours, ours)
	c.CPU = Query{Counter: "nobody_has_this_total", Labels: Labels{Replica: "pod"}}
	err := refused(t, c)
	require.ErrorContains(t, err, "cpu: query nobody_has_this_total[1m30s] at "+p.URL)
	require.ErrorContains(t, err, "no series; Prometheus has 24 targets, ")
}

func TestOldSamplesAreNoObservation(t *testing.T) {
	p := prometheus(t)
	old, young := p.exporter(t), p.exporter(t)
	old.play(ourPage("b1", 1, nil), ourPage("b1", 2, nil))
	old.played(t)
	c := p.config(t, ours, ours)
	c.MaxAge = model.Duration(time.Second)
	time.Sleep(time.Duration(c.MaxAge))
	err := refused(t, c)
	require.ErrorContains(t, err, "maxAge is 1s: does Prometheus still scrape? See "+p.URL+"/targets")

	young.play(ourPage("b2", 1, nil), ourPage("b2", 4, nil))
	young.played(t)
	o := observe(t, c)
	require.InDelta(t, 3, o.Replicas["b2"].CPUSeconds, 1e-9)
	require.NotContains(t, o.Replicas, "b1")
	require.Contains(t, o.Warnings, "absent: cpu and requests: no sample within 1s (maxAge): b1")
}

func TestNoNumbersAreLeftOut(t *testing.T) {
	p := prometheus(t)
	e := p.exporter(t)
	page := func(cpu, requests string) string {
		return "heartbed_cpu_seconds_total{replica=\"b1\"} " + cpu + "\n" +
			"heartbed_requests_total{replica=\"b1\",caller_replica=\"a1\",code=\"OK\"} " + requests + "\n"
	}
	// A reading with one impossible value counts for nothing at all.
	e.play(page("1", "10"), page("NaN", "15"), page("2", "NaN"), page("3", "-4"), page("+Inf", "20"), page("5", "50"))
	e.played(t)
	o := observe(t, p.config(t, ours, ours))
	require.InDelta(t, 4, o.Replicas["b1"].CPUSeconds, 1e-9)
	require.InDelta(t, 40, o.Replicas["b1"].Requests, 1e-9)
	require.Contains(t, o.Warnings, "cpu: left out 2 samples that are below zero or no finite number")
	require.Contains(t, o.Warnings, "requests: left out 2 samples that are below zero or no finite number")
}

// What two targets show of one replica is not added up.
func TestDuplicateSeries(t *testing.T) {
	p := prometheus(t)
	one, other := p.exporter(t), p.exporter(t)
	other.hold(ourPage("b1", 1, nil))
	other.wait(t, 1)
	one.play(ourPage("b1", 1, nil)+ourPage("b2", 1, nil), ourPage("b1", 2, nil)+ourPage("b2", 2, nil))
	one.played(t)
	o := observe(t, p.config(t, ours, ours))
	require.Contains(t, o.Replicas, "b2")
	require.NotContains(t, o.Replicas, "b1")
	warnings := strings.Join(o.Warnings, "\n")
	require.Contains(t, warnings, "absent: cpu and requests: two series count the same (instance=")
	for _, e := range []*exporter{one, other} {
		require.Contains(t, warnings, strings.TrimPrefix(e.URL, "http://"))
	}
}

// prometheus/node_exporter#1528: an address is no name. A replica that is
// scraped at another address goes on as the same.
func TestAddressesMayChange(t *testing.T) {
	p := prometheus(t)
	before, after := p.exporter(t), p.exporter(t)
	before.play(ourPage("b1", 1, map[string]float64{"a1": 10}), ourPage("b1", 2, map[string]float64{"a1": 20}))
	before.played(t)
	after.play(ourPage("b1", 3, map[string]float64{"a1": 40}), ourPage("b1", 5, map[string]float64{"a1": 50}))
	after.played(t)
	o := observe(t, p.config(t, ours, ours))
	require.InDelta(t, 4, o.Replicas["b1"].CPUSeconds, 1e-9)
	require.InDelta(t, 40, o.Replicas["b1"].Requests, 1e-9)
}

func TestForeignNames(t *testing.T) {
	p := prometheus(t)
	e := p.exporter(t)
	e.play(ourPage("10.0.0.7:8080", 1, nil), ourPage("10.0.0.7:8080", 2, nil))
	e.played(t)
	require.ErrorContains(t, refused(t, p.config(t, ours, ours)),
		`label replica is "10.0.0.7:8080" and the like, expected names of replicas such as "a1"`)
}

func TestAnswerTooLarge(t *testing.T) {
	p := prometheus(t)
	playBoth(t, p.exporter(t))
	c := p.config(t, ours, ours)
	c.MaxBytes = 200
	err := refused(t, c)
	require.ErrorContains(t, err, "answer is larger than maxBytes (200 bytes): let the query select fewer series, or raise maxBytes")
	require.ErrorContains(t, err, "query heartbed_cpu_seconds_total{")
}

func TestFaultyQuery(t *testing.T) {
	p := prometheus(t)
	c := p.config(t, ours, ours)
	c.CPU = Query{Counter: "rate(x[1m])", Labels: Labels{Replica: "pod"}}
	err := refused(t, c)
	require.ErrorContains(t, err, "query rate(x[1m])[1m30s] at "+p.URL)
	require.ErrorContains(t, err, "bad_data")
	require.ErrorContains(t, err, "correct the query")
}

func TestNoPrometheusThere(t *testing.T) {
	p := prometheus(t)
	c := p.config(t, ours, ours)
	c.Address = "http://" + freeAddress(t)
	require.ErrorContains(t, refused(t, c), "connection refused: is Prometheus running there and reachable from here?")
	c.Address = p.URL + "/wrong/prefix"
	err := refused(t, c)
	require.ErrorContains(t, err, "query time() at "+c.Address)
	require.ErrorContains(t, err, "is this the address of a Prometheus, with its path prefix?")
	e := p.exporter(t)
	c.Address = e.URL // answers, but with text
	require.ErrorContains(t, refused(t, c), "is this the address of a Prometheus, with its path prefix?")
}

func TestAPIWarningsTravel(t *testing.T) {
	t.Parallel()
	p := start(t, "remote_read: [{url: \"http://"+freeAddress(t)+"/read\", read_recent: true}]\n")
	e := p.exporters[0]
	e.hold(ourPage("b1", 1, nil))
	e.wait(t, 2)
	o := observe(t, p.config(t, ours, ours))
	require.Contains(t, o.Replicas, "b1")
	require.Contains(t, strings.Join(o.Warnings, "\n"), "prometheus, query heartbed_cpu_seconds_total{")
	require.Contains(t, strings.Join(o.Warnings, "\n"), "remote_read")
}

// A Prometheus that hangs, dies and is not yet ready is an error each time,
// and within the time limit.
func TestPrometheusHangsAndDies(t *testing.T) {
	t.Parallel()
	p := start(t, "")
	c := p.config(t, ours, ours)
	c.Timeout = model.Duration(300 * time.Millisecond)
	require.NoError(t, p.command.Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	err := refused(t, c)
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorContains(t, err, "no answer within 300ms; is Prometheus overloaded, or timeout too short?")
	p.kill()
	require.ErrorContains(t, refused(t, c), "is Prometheus running there")
}

func TestClockOfAnotherMachine(t *testing.T) {
	p := prometheus(t)
	playBoth(t, p.exporter(t))
	o := observer(t, p.config(t, ours, ours), pair())
	for word, off := range map[string]time.Duration{"behind": time.Hour, "ahead of": -time.Hour} {
		o.now = func() time.Time { return time.Now().Add(off) }
		got, err := o.Observe(t.Context())
		require.NoError(t, err)
		require.Len(t, got.Replicas, 2)
		warnings := strings.Join(got.Warnings, "\n")
		require.Contains(t, warnings, "the clock of Prometheus at "+p.URL+" is ")
		require.Contains(t, warnings, word+" this machine's")
		require.WithinDuration(t, time.Now(), got.End, time.Minute, "the end is in Prometheus's time")
	}
	o.now = time.Now
	got, err := o.Observe(t.Context())
	require.NoError(t, err)
	require.NotContains(t, strings.Join(got.Warnings, "\n"), "clock")
}

// Behind a proxy with TLS that asks for a token, as on OpenShift.
func TestTokenAndCertificate(t *testing.T) {
	p := prometheus(t)
	playBoth(t, p.exporter(t))
	target, err := url.Parse(p.URL)
	require.NoError(t, err)
	behind := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	proxy.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that refuse the certificate
	proxy.StartTLS()
	defer proxy.Close()
	c := p.config(t, ours, ours)
	c.Address = proxy.URL
	require.ErrorContains(t, refused(t, c), "certificate")

	dir := t.TempDir()
	c.CAFile = filepath.Join(dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})
	require.NoError(t, os.WriteFile(c.CAFile, block, 0o600))
	require.ErrorContains(t, refused(t, c), "access is refused; set bearerTokenFile")

	c.BearerTokenFile = filepath.Join(dir, "token")
	require.ErrorContains(t, refused(t, c), "bearerTokenFile: open ")
	require.NoError(t, os.WriteFile(c.BearerTokenFile, []byte("secret\n"), 0o600))
	require.Len(t, observe(t, c).Replicas, 2)

	require.NoError(t, os.WriteFile(c.CAFile, []byte("no certificate"), 0o600))
	_, err = New(c, nil)
	require.ErrorContains(t, err, "holds no certificate in PEM form")
}
