// Package probe measures round-trip times to other nodes and exports them as
// the blackbox exporter would. A failure is a failure: it leaves no time
// behind that could be taken for a very short one (blackbox_exporter#147).
package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	probing "github.com/prometheus-community/pro-bing"
)

// Target is a node to measure.
type Target struct {
	Name string
	Addr netip.Addr
	// Port is open for TCP and serves as the fallback where ICMP is not
	// permitted; 0 = no fallback.
	Port uint16
}

// ParseTarget reads "name=address" or "name=address:port"; an IPv6 address
// with a port stands in brackets.
func ParseTarget(text string) (Target, error) {
	name, where, ok := strings.Cut(text, "=")
	if ok && name != "" {
		if addr, err := netip.ParseAddr(where); err == nil {
			return Target{Name: name, Addr: addr}, nil
		}
		if both, err := netip.ParseAddrPort(where); err == nil && both.Port() != 0 {
			return Target{Name: name, Addr: both.Addr(), Port: both.Port()}, nil
		}
	}
	return Target{}, fmt.Errorf("target: found %q, expected name=address or name=address:port", text)
}

// Method is how a time was measured.
type Method string

const (
	ICMP Method = "icmp" // echo request and reply
	TCP  Method = "tcp"  // from the connect to its completion, one round trip
)

// Options of a measurement; zero values are replaced by the defaults.
type Options struct {
	Count   int           // probes, of which the median counts; default 5
	Spacing time.Duration // between two probes; default 20 ms
	Timeout time.Duration // for all probes together; default 2 s
	TCP     bool          // at once, not as the fallback
}

func (o Options) withDefaults() Options {
	if o.Count == 0 {
		o.Count = 5
	}
	if o.Spacing == 0 {
		o.Spacing = 20 * time.Millisecond
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Second
	}
	return o
}

// Measure returns the median round-trip time to t, by ICMP where the system
// permits it, else or if asked by TCP. One answer is enough; none is an error.
func Measure(ctx context.Context, t Target, o Options) (time.Duration, Method, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	method := ICMP
	var times []time.Duration
	var err error
	if !o.TCP {
		times, err = ping(ctx, t, o)
	}
	if o.TCP || errors.Is(err, fs.ErrPermission) && t.Port != 0 {
		method = TCP
		times, err = connect(ctx, t, o)
	}
	if err == nil && len(times) == 0 {
		err = fmt.Errorf("no answer within %v", o.Timeout)
	}
	if err != nil {
		return 0, method, fmt.Errorf("probe %s (%v) by %s: %w", t.Name, t.Addr, method, err)
	}
	return median(times), method, nil
}

// ping measures by ICMP echo, over a raw socket or, without the privilege,
// over the datagram socket that net.ipv4.ping_group_range allows.
func ping(ctx context.Context, t Target, o Options) ([]time.Duration, error) {
	times, err := pingOver(ctx, t, o, true)
	if errors.Is(err, fs.ErrPermission) {
		times, err = pingOver(ctx, t, o, false)
	}
	return times, err
}

func pingOver(ctx context.Context, t Target, o Options, raw bool) ([]time.Duration, error) {
	p := probing.New(t.Addr.String())
	p.SetPrivileged(raw)
	p.SetLogger(probing.NoopLogger{})
	p.Count, p.Interval, p.Timeout = o.Count, o.Spacing, o.Timeout
	err := p.RunWithContext(ctx)
	if ctx.Err() != nil {
		err = nil // the end of the time; answers that came before it count
	}
	return p.Statistics().Rtts, err
}

// connect measures by opening connections.
func connect(ctx context.Context, t Target, o Options) ([]time.Duration, error) {
	var (
		times  []time.Duration
		last   error
		dialer net.Dialer
	)
	to := net.JoinHostPort(t.Addr.String(), strconv.Itoa(int(t.Port)))
	for i := range o.Count {
		if i > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(o.Spacing):
			}
		}
		start := time.Now()
		conn, err := dialer.DialContext(ctx, "tcp", to)
		if err != nil {
			last = err
			continue
		}
		times = append(times, time.Since(start))
		_ = conn.Close() // nothing was written
	}
	if len(times) > 0 {
		last = nil
	}
	return times, last
}

func median(times []time.Duration) time.Duration {
	times = slices.Sorted(slices.Values(times))
	n := len(times)
	return (times[(n-1)/2] + times[n/2]) / 2
}
