// Package service is a replica of any component of any application: it takes
// a call over gRPC, burns the CPU time and makes the calls that the
// application's graph says, and answers. The same program is the gateway that
// turns HTTP into the first call.
package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"heartbed/workloads"
)

// The wire format: Method takes and gives a wrapperspb.BytesValue.
const (
	Method    = "/heartbed.Workload/Call"
	CallerKey = "x-caller" // metadata: name of the calling replica
	DrawKey   = "x-draw"   // metadata and HTTP header: decimal seed of the request's draws
)

// Defaults of a Config.
const (
	DefaultQueue = 10_000
	DefaultDrain = 10 * time.Second
)

// Config is what one replica is and does. As JSON, durations are nanoseconds.
type Config struct {
	Replica   string // its name, also the xDS node id by which it gets its routes
	Component string // one of App's; for a gateway any name
	Node      string
	App       workloads.Application
	Listen    string // host:port of gRPC, or of HTTP for a gateway
	Metrics   string // host:port of /metrics and /ready; "" = none
	// Slowness multiplies every CPU step; 0 = 1, the reference node.
	Slowness float64
	// Connections is how many connections to each callee are kept under
	// per-connection balancing, which pins each of them to a replica; 0 = no
	// pool: the routes draw a replica for every request.
	Connections int
	// ProxyThreads is how many counters of outstanding requests there are to
	// each callee under least-request balancing; 0 = 1.
	ProxyThreads int
	// Targets maps a called component to its gRPC target where that is not
	// xds:///<component>, such as dns:///b.default:8080.
	Targets map[string]string
	// Services maps a called component to the address, host:port, of a
	// Kubernetes Service. Under per-connection balancing connections are opened
	// to it and kube-proxy picks their replica; with Connections 0 one for every
	// request.
	Services map[string]string
	Gateway  bool
	// BehindGateway says that a gateway is the first component of the call
	// tree: the draws of a request depend on a component's place in it.
	BehindGateway bool
	// Queue is how many requests may be in the replica at once, running or
	// waiting for a slot or for their own calls; one more is refused with
	// ResourceExhausted. 0 = DefaultQueue.
	Queue int
	// Deadline bounds each request from its arrival; 0 = only the caller's own.
	Deadline time.Duration
	// Drain bounds how long requests in flight are finished at the end; 0 =
	// DefaultDrain.
	Drain time.Duration
	// Push says where requests in flight are reported while the replica runs;
	// by default nowhere.
	Push Push
}

// ReadConfig reads and validates a Config from a JSON file. All faults are
// joined and name the file.
func ReadConfig(file string) (Config, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("read service config: %w", err)
	}
	var c Config
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// Validate reports every fault of the config, joined.
func (c Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct{ name, value string }{{"Replica", c.Replica}, {"Component", c.Component}, {"Listen", c.Listen}} {
		if f.value == "" {
			fault("%s: found none, expected one", f.name)
		}
	}
	if err := c.App.Validate(); err != nil {
		errs = append(errs, err)
	}
	if !c.Gateway && !slices.ContainsFunc(c.App.Components, func(x workloads.Component) bool { return x.Name == c.Component }) {
		fault("Component: found %q, expected a component of application %q", c.Component, c.App.Name)
	}
	if !(c.Slowness >= 0) || math.IsInf(c.Slowness, 0) {
		fault("Slowness: found %v, expected a number of 0 or more", c.Slowness)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"Connections", int64(c.Connections)}, {"ProxyThreads", int64(c.ProxyThreads)}, {"Queue", int64(c.Queue)}, {"Deadline", int64(c.Deadline)}, {"Drain", int64(c.Drain)}, {"Push.Every", int64(c.Push.Every)}} {
		if f.value < 0 {
			fault("%s: found %d, expected 0 or more", f.name, f.value)
		}
	}
	return errors.Join(errs...)
}

// withDefaults fills in what 0 stands for.
func (c Config) withDefaults() Config {
	if c.Slowness == 0 {
		c.Slowness = 1
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	if c.Drain == 0 {
		c.Drain = DefaultDrain
	}
	c.ProxyThreads = max(c.ProxyThreads, 1)
	return c
}
