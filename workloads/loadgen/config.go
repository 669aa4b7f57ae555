// Package loadgen offers load to a running service over HTTP/1.1 or gRPC and
// measures from the moment each request was due. It keeps the two schedules
// of the scenarios (workloads.Load): open, where a request leaves when due
// whatever is outstanding, and wrk2, where each connection has one request
// outstanding and its own pace.
//
// HTTP is written and read on the socket itself: net/http spends several
// times the CPU a request, which on a small machine is taken from the system
// under test.
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"time"

	"heartbed/workloads"
)

// Config is one run of the generator.
type Config struct {
	// Target is http://HOST[:PORT][/PATH], grpc://HOST:PORT, or a target of
	// any resolver registered with grpc-go (dns:///..., xds:///...). gRPC
	// calls /heartbed.Workload/Call with an empty BytesValue.
	Target string
	// Load is the schedule. With an open one, Connections > 0 limits how many
	// requests can be outstanding: a request that finds none free waits, and
	// that wait is part of its latency; 0 = no limit.
	Load workloads.Load
	// ClosedLoop replaces the schedule: each of Load.Connections sends its
	// next request as soon as the last was answered, which finds the highest
	// rate and no honest latency. RPS is not used.
	ClosedLoop bool
	RPS        float64
	// Duration is the time of the schedule; requests due in its first Drop
	// are not measured.
	Duration, Drop time.Duration
	// Seed of the trial and number of this run of it (workloads.WarmupRun,
	// MeasuredRun): they give the Poisson arrivals and, for the n-th request to
	// leave, workloads.RequestDraws. So it costs the same under every policy and
	// in the simulator.
	Seed, Run uint64
	// Draws sends with each HTTP request a header X-Draw, the seed of its
	// random draws, as gRPC always does (metadata x-draw).
	Draws  bool
	Caller string // gRPC metadata x-caller; "" = none
	// Addresses, host:port, are where connections are opened to instead of the
	// Target's own: one at random for each connection, as kube-proxy picks.
	Addresses []string
	// Dial opens the connections instead of net.Dialer, such as in another
	// network namespace. nil = net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`
	// Spin is how long before a due time the open schedule stops sleeping and
	// polls the clock: more is more exact, costs CPU, and keeps answers waiting
	// meanwhile if it is not well below the time between two requests.
	// 0 = DefaultSpin, negative = none.
	Spin time.Duration
	// Hiccups also measures what this machine adds to anything that waits.
	Hiccups bool
	// OnProgress is called every ProgressEvery (0 = one second) from one
	// goroutine.
	OnProgress    func(Progress) `json:"-"`
	ProgressEvery time.Duration
}

// DefaultSpin covers what a timer of the kernel is usually late by.
const DefaultSpin = 50 * time.Microsecond

// ErrConfig marks a configuration that makes no sense.
var ErrConfig = errors.New("bad load configuration")

// Validate reports every fault of the configuration, joined; each wraps
// ErrConfig.
func (c Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	if _, err := parseTarget(c.Target); err != nil {
		errs = append(errs, err)
	}
	if c.ClosedLoop {
		if c.Load.Connections < 1 {
			add("connections: found %d, expected 1 or more for a closed loop", c.Load.Connections)
		}
	} else {
		if err := c.Load.Validate(); err != nil {
			add("%w", err)
		}
		if c.Load.Connections < 0 {
			add("connections: found %d, expected 0 (no limit) or more", c.Load.Connections)
		}
		if !(c.RPS > 0) || math.IsInf(c.RPS, 0) {
			add("rate: found %v, expected a number above 0", c.RPS)
		}
	}
	for _, a := range c.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			add("address: %w", err)
		}
	}
	if c.Duration <= 0 {
		add("duration: found %v, expected more than 0s", c.Duration)
	}
	if c.Drop < 0 || c.Drop >= max(c.Duration, 1) {
		add("drop: found %v, expected 0s or more and less than the duration of %v", c.Drop, c.Duration)
	}
	if c.Load.Timeout < 0 {
		add("timeout: found %v, expected 0s (none) or more", c.Load.Timeout)
	}
	return errors.Join(errs...)
}

// target is a parsed Config.Target.
type target struct {
	grpc    bool
	address string // host:port, or a grpc-go target
	host    string // HTTP Host header
	path    string // HTTP request target, with the query
}

func parseTarget(text string) (target, error) {
	fault := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("%w: target %q: "+format, append([]any{ErrConfig, text}, args...)...)
	}
	u, err := url.Parse(text)
	if err != nil {
		return fault("%w", err)
	}
	switch {
	case u.Scheme == "http" && u.Host != "":
		port := u.Port()
		if port == "" {
			port = "80"
		}
		return target{address: net.JoinHostPort(u.Hostname(), port), host: u.Host, path: u.RequestURI()}, nil
	case u.Scheme == "grpc" && u.Port() != "":
		return target{grpc: true, address: "passthrough:///" + u.Host}, nil
	case u.Scheme == "https":
		return fault("TLS is not offered, expected http:// or grpc://")
	case u.Scheme != "" && u.Scheme != "http" && u.Scheme != "grpc" && u.Path != "":
		return target{grpc: true, address: text}, nil
	}
	return fault("expected http://HOST[:PORT]/PATH, grpc://HOST:PORT or a grpc-go target such as xds:///NAME")
}

// orDefault gives the time to spin that a configuration means.
func orDefault(spin time.Duration) time.Duration {
	if spin == 0 {
		return DefaultSpin
	}
	return spin
}
