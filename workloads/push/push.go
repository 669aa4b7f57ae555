// Package push is a stand-in for Envoy's metrics service sink, for services
// that run without Envoy: it pushes a service's own counts over the protocol,
// by the names and in the order in which Envoy in an Istio pod would. Receivers
// are tested and measured with it; it proves nothing about Envoy itself.
//
// As Envoy it is silent about a receiver that does not answer, loses what it
// could not send, names its node in the first message of a stream only, sends
// gauges only once they were used, and opens a new stream at the flush after
// the old one ended. Unlike Envoy it sends histograms without buckets and
// quantiles. It imports nothing of ours.
package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
)

// DefaultEvery is Envoy's stats_flush_interval.
const DefaultEvery = 5 * time.Second

// defaultPort is the port in the names, if none is given.
const defaultPort = 8080

// Options say who pushes what to whom.
type Options struct {
	Target string // gRPC target of the receiver, such as host:port
	Pod    string
	// Namespace is the pod's; "" = default.
	Namespace string
	IP        string // the pod's, a part of the node id only; "" = 127.0.0.1
	// Type is the kind of proxy to pass for; "" = Sidecar.
	Type Type
	// Every is the flush interval; 0 = DefaultEvery.
	Every time.Duration
	// First is how long after the start the first flush is; 0 = Every.
	First time.Duration
	// Port is the one in the names of the metrics; 0 = 8080.
	Port int
	// Read gives the values of a flush. It is called by one goroutine.
	Read func() Values
	// BatchSize is how many metric families a message carries at most; 0 = all
	// of a flush in one message.
	BatchSize int
	// Undelimited leaves out the semicolon behind the prefix of HTTP names, as
	// Istio did before July 2024.
	Undelimited bool
	// TagsAsLabels moves a listener's address from its name into a label, as
	// Envoy's emit_tags_as_labels does under Istio's rules.
	TagsAsLabels bool
	// Noise is how many more metric families each flush has that say nothing
	// about the service's load: see Noise. Receivers must pass over them.
	Noise int
	// Now gives the timestamps; nil = time.Now.
	Now func() time.Time
	// Dial is added to the options of the connection, which is in plain text
	// without.
	Dial []grpc.DialOption
	// Log is told when the receiver is lost and found; nil = nobody is.
	Log *slog.Logger
}

// Type is a kind of proxy.
type Type string

// The types.
const (
	// Sidecar stands beside one service: what comes in is inbound.
	Sidecar Type = "sidecar"
	// Router is a gateway: what it passes on is outbound.
	Router Type = "router"
)

// Validate reports every fault of the options, joined.
func (o Options) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Target == "" {
		fault("Target: found none, expected one")
	}
	if o.Pod == "" {
		fault("Pod: found none, expected one")
	}
	if o.Read == nil {
		fault("Read: found none, expected one")
	}
	if t := o.Type; t != "" && t != Sidecar && t != Router {
		fault("Type: found %q, expected %q or %q", t, Sidecar, Router)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"Every", int64(o.Every)}, {"First", int64(o.First)}, {"Port", int64(o.Port)}, {"BatchSize", int64(o.BatchSize)}, {"Noise", int64(o.Noise)}} {
		if f.value < 0 {
			fault("%s: found %d, expected 0 or more", f.name, f.value)
		}
	}
	return errors.Join(errs...)
}

// withDefaults fills in what zero stands for.
func (o Options) withDefaults() Options {
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.IP = cmp.Or(o.IP, "127.0.0.1")
	o.Type = cmp.Or(o.Type, Sidecar)
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.First = cmp.Or(o.First, o.Every)
	o.Port = cmp.Or(o.Port, defaultPort)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run pushes until ctx ends, which is no error.
func Run(ctx context.Context, o Options) error {
	if err := o.Validate(); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	s, err := newSink(o.withDefaults())
	if err != nil {
		return fmt.Errorf("push to %s: %w", o.Target, err)
	}
	s.run(ctx)
	return s.close()
}
