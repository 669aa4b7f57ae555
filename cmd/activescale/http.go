package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	"heartbed/activescale/sink"
)

// streamsPage is what /streams answers: what the doctor asks every replica.
type streamsPage struct {
	FreshSeconds float64     `json:"freshSeconds"` // how long a sample counts
	Streams      []streamRow `json:"streams"`      // by pod
}

// streamRow is an open stream.
type streamRow struct {
	Pod      string  `json:"pod"` // NAMESPACE/NAME
	Peer     string  `json:"peer"`
	Age      float64 `json:"ageSeconds"`
	Flushes  uint64  `json:"flushes"`
	FlushAge float64 `json:"flushAgeSeconds"` // since the last flush
	Requests bool    `json:"requests"`        // a gauge of requests was in it
	OwnOnly  bool    `json:"ownOnly"`         // only those of the proxy's own listeners were
	Bad      bool    `json:"bad"`             // the last flush was not taken

	freshFor float64 // FreshSeconds of the page
}

func newStreamsPage(streams []sink.Stream, ttl time.Duration, now time.Time) streamsPage {
	page := streamsPage{FreshSeconds: ttl.Seconds(), Streams: []streamRow{}}
	for _, s := range streams {
		last := s.Last
		if s.Flushes == 0 {
			last = s.Since
		}
		page.Streams = append(page.Streams, streamRow{
			Pod: s.Pod.String(), Peer: s.Peer, Age: now.Sub(s.Since).Seconds(), Flushes: s.Flushes, FlushAge: now.Sub(last).Seconds(),
			Requests: s.Requests, OwnOnly: s.OnlyOthers, Bad: s.Bad,
		})
	}
	slices.SortFunc(page.Streams, func(a, b streamRow) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.FlushAge, b.FlushAge))
	})
	return page
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{s.registry, prometheus.GathererFunc(freshness)}, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := s.notReady(); reason != "" {
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
		for _, d := range s.degraded() {
			fmt.Fprintln(w, "degraded:", strings.ReplaceAll(d, "\n", "; "))
		}
	})
	mux.HandleFunc("GET /streams", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// a client that is gone needs no answer
		_ = json.NewEncoder(w).Encode(newStreamsPage(s.sink.Streams(), s.settings.ttl(), time.Now()))
	})
	return mux
}

// freshness is the one metric of Kubernetes' library that says something about
// this program: how old the samples were that the API has given.
func freshness() ([]*dto.MetricFamily, error) {
	all, err := legacyregistry.DefaultGatherer.Gather()
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "metrics_apiserver_") }), err
}

// notReady says why nothing should come here, "" when it should. Redis is no
// reason: to take every replica out at once because of it would blind all.
func (s *server) notReady() string {
	switch {
	case s.ending.Load():
		return "ending"
	case !s.pods.synced():
		return "the pods of the cluster are not known yet"
	case !s.serving.Load():
		return "the API does not serve yet"
	}
	return ""
}

// degraded says what is not as it should be, though this replica serves.
func (s *server) degraded() []string {
	all := s.registration.degraded()
	if s.shared != nil {
		if err := s.shared.Health(); err != nil {
			all = append(all, "redis: "+err.Error())
		}
	}
	if n := len(s.sink.Streams()); n == 0 {
		all = append(all, "no proxy pushes to this replica")
	}
	return append(all, s.coverage.degraded()...)
}
