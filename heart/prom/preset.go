package prom

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"heartbed/heart"
)

// windowVariable stands for the window in a user's PromQL.
const windowVariable = "$window"

// ours is the preset of Heartbed's own exporters.
const ours = "heartbed"

// preset is a query that is known here.
type preset struct {
	metric   string   // its name in Prometheus
	matchers []string // what its series must have, besides the user's labels
	wants    []string // labels that the user has to match
	labels   Labels   // the defaults
	// distinct labels tell apart the counters of one replica that are added up.
	// Two series that differ in others only are of the same counter.
	distinct []string
	// together: all counters of a replica are of one process and come from one
	// scrape.
	together bool
}

var cpuPresets = map[string]preset{
	ours: {
		metric: "heartbed_cpu_seconds_total", labels: Labels{Replica: "replica"},
		distinct: []string{}, together: true,
	},
	// The rows of the pod itself (container="", or "POD" under old runtimes for
	// the pause container) and of the groups above hold the containers' CPU time
	// again. Containers are read one after the other, each at its own time.
	"cadvisor": {
		metric: "container_cpu_usage_seconds_total", matchers: []string{`container!=""`, `container!="POD"`},
		wants: []string{"namespace"}, labels: Labels{Replica: "pod"},
		distinct: []string{"container", "cpu"},
	},
}

var requestPresets = map[string]preset{
	ours: {
		metric: "heartbed_requests_total", matchers: []string{`code="OK"`},
		labels:   Labels{Replica: "replica", CallerReplica: "caller_replica"},
		distinct: []string{"caller_replica", "code"}, together: true,
	},
	// The callee's own proxy reports, so that the target's labels are the
	// callee's. Requests answered with an error cost other CPU time.
	"istio": {
		metric:   "istio_requests_total",
		matchers: []string{`reporter="destination"`, `response_code=~"[123].."`, `grpc_response_status=~"|0"`},
		wants:    []string{"namespace"},
		labels:   Labels{Replica: "pod", CallerComponent: "source_canonical_service"}, together: true,
	},
}

var rttPresets = map[string]preset{
	ours:       {metric: "probe_icmp_duration_seconds", labels: Labels{Source: "source", Target: "target"}},
	"blackbox": {metric: "probe_icmp_duration_seconds", labels: Labels{Source: "source", Target: "target"}},
}

// source is a Query made ready.
type source struct {
	name     string // cpu, requests or rtt
	preset          // its metric is empty where the query is the user's own
	selector string // of counters; "" = promql
	promql   string
	// mayBeSilent: the same process shows CPU time with the same labels, and
	// has no series of this before its first request. Without one it was idle.
	mayBeSilent bool
}

func newSource(name string, q Query, presets map[string]preset) source {
	s := source{name: name, preset: presets[q.Preset], selector: q.Counter, promql: q.PromQL}
	if q.Preset == "" {
		// One process answers the requests of a replica; its CPU time may be of
		// several containers.
		s.together = name == "requests"
	} else {
		s.selector = s.metric + braces(s.matchers, q.Match)
	}
	if q.Labels.CallerReplica != "" || q.Labels.CallerComponent != "" {
		s.labels.CallerReplica, s.labels.CallerComponent = q.Labels.CallerReplica, q.Labels.CallerComponent
		if i := slices.Index(s.distinct, presets[q.Preset].labels.CallerReplica); i >= 0 {
			s.distinct = slices.Clone(s.distinct)
			s.distinct[i] = cmp.Or(s.labels.CallerReplica, s.labels.CallerComponent)
		}
	}
	s.labels.Replica = cmp.Or(q.Labels.Replica, s.labels.Replica)
	s.labels.Source = cmp.Or(q.Labels.Source, s.labels.Source)
	s.labels.Target = cmp.Or(q.Labels.Target, s.labels.Target)
	return s
}

// braces writes the matchers of a selector.
func braces(matchers []string, match map[string]string) string {
	all := slices.Clone(matchers)
	for _, name := range slices.Sorted(maps.Keys(match)) {
		all = append(all, name+"="+strconv.Quote(match[name]))
	}
	if len(all) == 0 {
		return ""
	}
	return "{" + strings.Join(all, ",") + "}"
}

// with adds a matcher to the selector of a preset.
func (s source) with(matcher string) string {
	if begin, found := strings.CutSuffix(s.selector, "}"); found {
		return begin + "," + matcher + "}"
	}
	return s.selector + "{" + matcher + "}"
}

// of is the selector of a preset for some replicas.
func (s source) of(replicas []heart.Replica) string {
	var names []string
	for _, replica := range replicas {
		names = append(names, regexp.QuoteMeta(replica.Name))
	}
	return s.with(s.labels.Replica + "=~" + strconv.Quote(strings.Join(names, "|")))
}

// newRTTSource makes the query of round-trip times. A prober may leave a
// duration behind when it fails, and what was measured long ago says nothing
// of now: a time counts only with a success that was scraped within maxAge.
func newRTTSource(q Query, maxAge time.Duration) source {
	s := newSource("rtt", q, rttPresets)
	if q.Preset == "" {
		return s
	}
	on := fmt.Sprintf("on (%s, %s)", s.labels.Source, s.labels.Target)
	success := "probe_success" + braces(nil, q.Match)
	duration := s.metric + braces([]string{`phase="rtt"`}, q.Match)
	if q.Preset == "blackbox" { // a probe by TCP has no phase of this name; its connect is one round trip
		duration = fmt.Sprintf("(%s or %s probe_duration_seconds%s)", duration, on, braces(nil, q.Match))
	}
	s.selector = ""
	s.promql = fmt.Sprintf("%s and %s (%s == 1) and %s (timestamp(%s) >= time() - %g)", duration, on, success, on, success, maxAge.Seconds())
	return s
}
