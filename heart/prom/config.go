package prom

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Defaults of a Config.
const (
	DefaultWindow   = model.Duration(30 * time.Second)
	DefaultTimeout  = model.Duration(10 * time.Second)
	DefaultMaxBytes = 64 << 20
)

// Config says where Prometheus is and what to ask it. Durations are written
// as in Prometheus ("30s", "1m30s", "500ms").
type Config struct {
	Address string `yaml:"address" json:"address"` // http:// or https://, with the path prefix if there is one
	// BearerTokenFile holds a token that is sent with every query; it is read
	// again each time, because such tokens are renewed. "" = none.
	BearerTokenFile string `yaml:"bearerTokenFile,omitempty" json:"bearerTokenFile,omitempty"`
	// CAFile holds the certificates (PEM) that sign the server's; "" = the
	// system's.
	CAFile string `yaml:"caFile,omitempty" json:"caFile,omitempty"`

	// Window is the longest time that an observation covers. It should hold
	// four scrapes or more.
	Window model.Duration `yaml:"window,omitempty" json:"window,omitempty"`
	// MaxAge is how long ago, by Prometheus's clock, a replica's newest sample
	// may have been scraped; 0 = Window.
	MaxAge   model.Duration `yaml:"maxAge,omitempty" json:"maxAge,omitempty"`
	Timeout  model.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`   // of all queries of an observation together
	MaxBytes int64          `yaml:"maxBytes,omitempty" json:"maxBytes,omitempty"` // of one answer, uncompressed

	CPU      Query `yaml:"cpu" json:"cpu"`
	Requests Query `yaml:"requests" json:"requests"`
	RTT      Query `yaml:"rtt,omitempty" json:"rtt,omitzero"` // empty = the topology's own
}

// Query is one thing to ask for: by a preset, by a selector of counters or by
// PromQL; exactly one of the three.
type Query struct {
	// Preset is heartbed or cadvisor for CPU, heartbed or istio for requests,
	// heartbed or blackbox for round-trip times.
	Preset string `yaml:"preset,omitempty" json:"preset,omitempty"`
	// Match holds labels that the series of a preset must have.
	Match map[string]string `yaml:"match,omitempty" json:"match,omitempty"`
	// Counter is a selector without a range, such as app_requests_total{env="a"}.
	Counter string `yaml:"counter,omitempty" json:"counter,omitempty"`
	// PromQL gives CPU seconds or requests of a window, for which $window
	// stands, or round-trip times in seconds.
	PromQL string `yaml:"promql,omitempty" json:"promql,omitempty"`
	// Labels name what is joined with the topology. Those that are empty have
	// the preset's defaults.
	Labels Labels `yaml:"labels,omitempty" json:"labels,omitzero"`
}

// Labels are names of labels.
type Labels struct {
	Replica string `yaml:"replica,omitempty" json:"replica,omitempty"` // whose value is a replica's name
	// CallerReplica or CallerComponent is whose value says who sent the
	// requests; with neither, no calls are observed.
	CallerReplica   string `yaml:"callerReplica,omitempty" json:"callerReplica,omitempty"`
	CallerComponent string `yaml:"callerComponent,omitempty" json:"callerComponent,omitempty"`
	// Source and Target hold the names of the two nodes of a round-trip time.
	Source string `yaml:"source,omitempty" json:"source,omitempty"`
	Target string `yaml:"target,omitempty" json:"target,omitempty"`
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.MaxAge == 0 {
		c.MaxAge = c.Window
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	return c
}

// Validate reports every fault of the config, joined.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if u, err := url.Parse(c.Address); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		errs = append(errs, fmt.Errorf("address: found %q, expected one such as http://prometheus.monitoring:9090", c.Address))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"window", int64(c.Window)}, {"maxAge", int64(c.MaxAge)}, {"timeout", int64(c.Timeout)}} {
		if f.value < int64(time.Millisecond) {
			errs = append(errs, fmt.Errorf("%s: found %v, expected 1ms or more", f.name, time.Duration(f.value)))
		}
	}
	if c.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("maxBytes: found %d, expected 1 or more", c.MaxBytes))
	}
	errs = append(errs, c.CPU.validate("cpu", cpuPresets)...)
	errs = append(errs, c.Requests.validate("requests", requestPresets)...)
	if !c.RTT.empty() {
		errs = append(errs, c.RTT.validate("rtt", rttPresets)...)
	}
	return errors.Join(errs...)
}

func (q Query) empty() bool {
	return q.Preset == "" && q.Counter == "" && q.PromQL == "" && len(q.Match) == 0 && q.Labels == Labels{}
}

// validate lists the faults of the query that stands in the named field.
func (q Query) validate(field string, presets map[string]preset) (errs []error) {
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+"."+format, args...))
	}
	p, known := presets[q.Preset]
	names := strings.Join(slices.Sorted(maps.Keys(presets)), " or ")
	if q.Preset != "" && !known {
		fault("preset: found %q, expected %s", q.Preset, names)
	}
	given := 0
	for _, text := range []string{q.Preset, q.Counter, q.PromQL} {
		if text != "" {
			given++
		}
	}
	if given != 1 {
		fault("preset: found %d of preset, counter and promql, expected exactly one; presets are %s", given, names)
	}
	if q.Preset == "" && len(q.Match) > 0 {
		fault("match: belongs to a preset; write the labels into the query")
	}
	for _, name := range p.wants {
		if q.Match[name] == "" {
			fault("match.%s: found none, expected the %s of the replicas: other %ss may have pods of the same names", name, name, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q.Match)) {
		if !model.LegacyValidation.IsValidLabelName(name) {
			fault("match: %q is no name of a label", name)
		}
	}
	if q.PromQL != "" && field != "rtt" && !strings.Contains(q.PromQL, windowVariable) {
		fault("promql: found no %s, expected increase(...[%s]) or the like: the amount in a window", windowVariable, windowVariable)
	}
	if field == "rtt" && q.Counter != "" {
		fault("counter: round-trip times are no counters; use promql")
	}
	return append(errs, q.Labels.validate(field, known)...)
}

// validate lists the faults of the labels for what the field measures;
// preset = a preset fills in what is empty.
func (l Labels) validate(field string, preset bool) (errs []error) {
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+".labels."+format, args...))
	}
	rtt, requests := field == "rtt", field == "requests"
	for _, f := range []struct {
		name, value      string
		fits, isRequired bool
	}{
		{"replica", l.Replica, !rtt, true},
		{"callerReplica", l.CallerReplica, requests, false},
		{"callerComponent", l.CallerComponent, requests, false},
		{"source", l.Source, rtt, true},
		{"target", l.Target, rtt, true},
	} {
		switch {
		case f.value == "" && f.fits && f.isRequired && !preset:
			fault("%s: found none, expected the name of a label", f.name)
		case f.value != "" && !f.fits:
			fault("%s: found %q, expected none: nothing of %s has it", f.name, f.value, field)
		case f.value == "instance":
			fault("%s: found %q, which holds an address: addresses change and are reused; relabel the target so that another label has the name", f.name, f.value)
		case f.value != "" && !model.LegacyValidation.IsValidLabelName(f.value):
			fault("%s: %q is no name of a label", f.name, f.value)
		}
	}
	if l.CallerReplica != "" && l.CallerComponent != "" {
		fault("callerReplica: found callerComponent, too, expected one of the two")
	}
	return errs
}
