package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"heartbed/tc"
)

// An agent that stands in the network of its node, as a privileged pod may, can
// delay what the node forwards to its pods. The delay lasts as long as the
// stream that asked for it.

type shaping struct {
	Toward netip.Addr // of another node's pod: the way there begins at the uplink
	Seed   uint64
}

// order is what the stream of a shaper carries after its request.
type order struct {
	Apply map[netip.Addr]tc.Link `json:",omitempty"`
	Stats bool                   `json:",omitempty"`
	Close bool                   `json:",omitempty"`
}

func shape(ctx context.Context, stream io.ReadWriter, q shaping) {
	var shaper tc.Shaper
	uplink, err := uplinkToward(q.Toward)
	if err == nil {
		shaper, err = tc.NewShaper(ctx, tc.Options{Uplink: uplink, Seed: q.Seed})
	}
	reply(stream, answer{}, err)
	if err != nil {
		return
	}
	closeOnce := sync.OnceValue(shaper.Close)
	defer func() { _ = closeOnce() }() // where nobody listens any more
	for {
		var o order
		if err := receive(stream, &o); err != nil {
			return
		}
		switch {
		case o.Close:
			reply(stream, answer{}, closeOnce())
			return
		case o.Stats:
			stats, err := shaper.Stats()
			reply(stream, answer{Stats: &stats}, err)
		default:
			reply(stream, answer{}, shaper.Apply(ctx, o.Apply))
		}
	}
}

// uplinkToward names the interface by which packets leave for an address.
func uplinkToward(addr netip.Addr) (string, error) {
	conn, err := net.Dial("udp", netip.AddrPortFrom(addr, AnswerPort).String()) // sends nothing
	if err != nil {
		return "", fmt.Errorf("way to %v: %w", addr, err)
	}
	defer conn.Close()
	local := conn.LocalAddr().(*net.UDPAddr).IP
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(local) {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("way to %v: no interface has the address %v", addr, local)
}

// Shaper is a tc.Shaper at the node of an agent.
type Shaper struct {
	client *Client
	mu     sync.Mutex // of the stream, one order at a time
	stream *yamux.Stream
	closed bool
}

// Shape makes a shaper of what the agent's node forwards to its pods. toward is
// the address of a pod on another node.
func (c *Client) Shape(ctx context.Context, toward netip.Addr, seed uint64) (*Shaper, error) {
	stream, _, err := c.ask(ctx, request{Shape: &shaping{toward, seed}})
	if err != nil {
		return nil, fmt.Errorf("shape in the cluster: %w", err)
	}
	return &Shaper{client: c, stream: stream}, nil
}

// Apply implements tc.Shaper.
func (s *Shaper) Apply(ctx context.Context, links map[netip.Addr]tc.Link) error {
	_, err := s.do(ctx, order{Apply: links})
	return err
}

// Stats implements tc.Shaper.
func (s *Shaper) Stats() (tc.Stats, error) {
	a, err := s.do(context.Background(), order{Stats: true})
	if err != nil || a.Stats == nil {
		return tc.Stats{}, err
	}
	return *a.Stats, nil
}

// Close implements tc.Shaper. A shaper whose agent is lost has ended with it.
func (s *Shaper) Close() error {
	_, err := s.do(context.Background(), order{Close: true})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(err, closed(s.stream))
}

// orderLimit is how long an agent may take to follow an order.
const orderLimit = 20 * time.Second

func (s *Shaper) do(ctx context.Context, o order) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return answer{}, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	return s.client.exchange(ctx, s.stream, o)
}
