package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// ErrRefused marks a table that a client refused. The client keeps the one it
// had.
var ErrRefused = errors.New("table refused by a client")

// Ack is what the server knows of one caller replica.
type Ack struct {
	Replica  string
	Streams  int           // open now; gRPC opens one for each target
	Version  string        // of the table in force
	Accepted bool          // the replica has accepted it for every component it calls
	After    time.Duration // from Route to the acceptance; 0 while Accepted is false
	Refusal  string        // the client's words if it has refused the table and not accepted it since
	Missing  []string      // components it has not accepted routes to, sorted
}

// acks follows which version each client has accepted.
type acks struct {
	mu      sync.Mutex
	at      time.Time // when the table in force was published
	nodes   map[string]*node
	streams map[int64]*stream
	changed chan struct{} // closed and replaced at every change
}

// node is a caller replica with a snapshot.
type node struct {
	version  string
	callees  []string
	accepted time.Time // of this publication; zero = not yet
	refusal  string
}

// stream is a client's connection. A client may hold several.
type stream struct {
	node  string
	types map[string]*subscription // by type URL
}

// subscription is what a stream asked for of one resource type.
type subscription struct {
	names    []string
	sent     string // version sent last
	nonce    string // of the response that carried it
	accepted string // version
}

func newAcks() *acks {
	return &acks{nodes: map[string]*node{}, streams: map[int64]*stream{}, changed: make(chan struct{})}
}

func (a *acks) callbacks() xserver.Callbacks {
	return xserver.CallbackFuncs{
		StreamRequestFunc: a.request, StreamResponseFunc: a.response, StreamClosedFunc: a.closed,
	}
}

// published notes the versions that are about to be sent.
func (a *acks) published(snapshots map[string]snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = time.Now()
	before := a.nodes
	a.nodes = make(map[string]*node, len(snapshots))
	for name, s := range snapshots {
		n := &node{version: s.version, callees: s.callees}
		if old := before[name]; old != nil && old.version == n.version {
			n.refusal = old.refusal // it is not sent again
		}
		a.nodes[name] = n
	}
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		if n := a.nodes[name]; len(a.missing(name, n)) == 0 {
			n.accepted = a.at
		}
	}
	a.wake()
}

// response notes what is being sent, to know later what a refusal is about.
func (a *acks) response(_ context.Context, id int64, req *discovery.DiscoveryRequest, resp *discovery.DiscoveryResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sub := a.subscription(id, req)
	sub.sent, sub.nonce = resp.GetVersionInfo(), resp.GetNonce()
}

// request notes an acceptance or a refusal.
func (a *acks) request(id int64, req *discovery.DiscoveryRequest) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	sub := a.subscription(id, req)
	sub.names = req.GetResourceNames()
	sub.accepted = req.GetVersionInfo()
	name := req.GetNode().GetId()
	n := a.nodes[name]
	if detail := req.GetErrorDetail(); detail != nil && req.GetResponseNonce() == sub.nonce {
		if n != nil && n.version == sub.sent {
			n.refusal = fmt.Sprintf("%s: %s", shortType(req.GetTypeUrl()), detail.GetMessage())
		}
		// The cache answers a request for another version than its own at once.
		// A client that refused its version would be sent it again and again,
		// as fast as both can; as if it had it, it waits for the next.
		req.VersionInfo = sub.sent
	}
	if n != nil && n.accepted.IsZero() && len(a.missing(name, n)) == 0 {
		n.accepted = time.Now()
	}
	a.wake()
	return nil
}

func (a *acks) closed(id int64, _ *core.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.streams, id)
	a.wake()
}

// subscription finds or makes the entry a message belongs to.
func (a *acks) subscription(id int64, req *discovery.DiscoveryRequest) *subscription {
	s := a.streams[id]
	if s == nil {
		s = &stream{node: req.GetNode().GetId(), types: map[string]*subscription{}}
		a.streams[id] = s
	}
	sub := s.types[req.GetTypeUrl()]
	if sub == nil {
		sub = &subscription{}
		s.types[req.GetTypeUrl()] = sub
	}
	return sub
}

// missing lists the components of which no stream of the replica has accepted
// the endpoints, and all else it asked for, at the version in force. Endpoints
// come last, so that a stream which has none yet is still learning.
func (a *acks) missing(name string, n *node) []string {
	has := map[string]bool{}
	for _, s := range a.streams {
		endpoints := s.types[resource.EndpointType]
		if s.node != name || endpoints == nil {
			continue
		}
		current := true
		for _, sub := range s.types {
			current = current && sub.accepted == n.version
		}
		for _, component := range endpoints.names {
			has[component] = has[component] || current
		}
	}
	return slices.DeleteFunc(slices.Clone(n.callees), func(c string) bool { return has[c] })
}

func (a *acks) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *acks) list() []Ack {
	a.mu.Lock()
	defer a.mu.Unlock()
	streams := map[string]int{}
	for _, s := range a.streams {
		streams[s.node]++
	}
	var all []Ack
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		n := a.nodes[name]
		ack := Ack{Replica: name, Streams: streams[name], Version: n.version}
		if ack.Accepted = !n.accepted.IsZero(); ack.Accepted {
			ack.After = n.accepted.Sub(a.at)
		} else {
			ack.Missing, ack.Refusal = a.missing(name, n), n.refusal
		}
		all = append(all, ack)
	}
	return all
}

func (a *acks) wait(ctx context.Context) (time.Duration, error) {
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		all := a.list()
		last, waiting, refused := summary(all)
		if len(refused) > 0 {
			return 0, fmt.Errorf("%w: %s", ErrRefused, strings.Join(refused, "; "))
		}
		if len(waiting) == 0 {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for tables to be accepted: %s: %w", strings.Join(waiting, "; "), ctx.Err())
		}
	}
}

// summary tells how long the slowest took and who is missing or refused.
func summary(all []Ack) (last time.Duration, waiting, refused []string) {
	for _, ack := range all {
		switch {
		case ack.Accepted:
			last = max(last, ack.After)
		case ack.Refusal != "":
			refused = append(refused, fmt.Sprintf("replica %q: %s", ack.Replica, ack.Refusal))
		case ack.Streams == 0:
			waiting = append(waiting, fmt.Sprintf("replica %q is not connected", ack.Replica))
		default:
			waiting = append(waiting, fmt.Sprintf("replica %q lacks routes to %s", ack.Replica, strings.Join(ack.Missing, ", ")))
		}
	}
	return last, waiting, refused
}

// shortType is the last part of a type URL, such as Cluster.
func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }
