package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/hashicorp/yamux"

	"heartbed/workloads/loadgen"
	"heartbed/workloads/probe"
)

// Client asks an agent. Its methods may be called at the same time.
type Client struct{ session *yamux.Session }

// NewClient speaks to the agent at the other end of a connection, which it
// owns from now on.
func NewClient(conn io.ReadWriteCloser) (*Client, error) {
	session, err := yamux.Client(conn, settings())
	if err != nil {
		return nil, fmt.Errorf("connect to agent: %w", errors.Join(err, conn.Close()))
	}
	return &Client{session}, nil
}

// Lost is closed when the connection is.
func (c *Client) Lost() <-chan struct{} { return c.session.CloseChan() }

// Close ends the connection and all that was asked for over it.
func (c *Client) Close() error { return c.session.Close() }

// Ping is the time that a word to the agent and back takes.
func (c *Client) Ping() (time.Duration, error) { return c.session.Ping() }

// ErrLost: there is no agent to ask any more.
var ErrLost = errors.New("the connection to the agent in the cluster is lost")

// ask sends a request over a stream of its own. The end of ctx ends the wait,
// and so what was asked for.
func (c *Client) ask(ctx context.Context, q request) (*yamux.Stream, answer, error) {
	stream, err := c.session.OpenStream()
	if err != nil {
		return nil, answer{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	a, err := c.exchange(ctx, stream, q)
	if err != nil {
		return nil, a, errors.Join(err, closed(stream))
	}
	return stream, a, nil
}

// exchange sends a message and waits for its answer, or the end of ctx.
func (c *Client) exchange(ctx context.Context, stream *yamux.Stream, message any) (a answer, err error) {
	stop := context.AfterFunc(ctx, func() {
		_ = stream.SetDeadline(time.Now()) // never fails; wakes up what waits
	})
	err = errors.Join(send(stream, message), receive(stream, &a))
	switch {
	case !stop(): // the stream may have a deadline from now on
		return a, context.Cause(ctx)
	case err == nil && a.Error != "":
		return a, errors.New(a.Error)
	case err != nil && c.session.IsClosed():
		return a, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return a, err
}

// closed closes a stream; one that a lost session has closed is closed.
func closed(stream *yamux.Stream) error {
	if err := stream.Close(); err != nil && !errors.Is(err, yamux.ErrSessionShutdown) && !errors.Is(err, yamux.ErrConnectionWriteTimeout) {
		return err
	}
	return nil
}

// Dial opens a TCP connection from the agent's pod to host:port.
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	stream, _, err := c.ask(ctx, request{Dial: address})
	if err != nil {
		return nil, fmt.Errorf("dial %s from the cluster: %w", address, err)
	}
	return stream, nil
}

// Measure is the round-trip time from the agent's pod to that of another
// agent, as the median of some TCP connections.
func (c *Client) Measure(ctx context.Context, to netip.Addr, probes int) (time.Duration, error) {
	stream, a, err := c.ask(ctx, request{Measure: &measurement{
		target(to), probe.Options{TCP: true, Count: probes, Timeout: dialLimit},
	}})
	if err != nil {
		return 0, fmt.Errorf("measure round trip: %w", err)
	}
	return a.RTT, closed(stream)
}

// Load offers load from the agent's pod, as loadgen.Run does; an end of ctx
// leaves no result.
func (c *Client) Load(ctx context.Context, load loadgen.Config) (loadgen.Result, error) {
	stream, a, err := c.ask(ctx, request{Load: &load})
	if err != nil {
		return loadgen.Result{}, fmt.Errorf("load from the cluster: %w", err)
	}
	return *a.Load, closed(stream)
}

// Listen takes TCP connections in the agent's pod. Only one listener can be
// open at a time.
func (c *Client) Listen(ctx context.Context, address string) (net.Listener, error) {
	stream, a, err := c.ask(ctx, request{Listen: address})
	if err != nil {
		return nil, fmt.Errorf("listen in the cluster: %w", err)
	}
	at, err := net.ResolveTCPAddr("tcp", a.Listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen in the cluster: %w", err), closed(stream))
	}
	open, end := context.WithCancel(context.Background())
	return &listener{session: c.session, stream: stream, at: at, open: open, end: end}, nil
}

// listener takes the streams that the agent opens.
type listener struct {
	session *yamux.Session
	stream  *yamux.Stream
	at      net.Addr
	open    context.Context
	end     context.CancelFunc
}

func (l *listener) Accept() (net.Conn, error) {
	stream, err := l.session.AcceptStreamWithContext(l.open)
	switch {
	case l.open.Err() != nil:
		return nil, net.ErrClosed
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return stream, nil
}

// Close waits until the port is free, or the agent does not answer.
func (l *listener) Close() error {
	l.end()
	err := closed(l.stream)
	_ = l.stream.SetReadDeadline(time.Now().Add(dialLimit)) // never fails
	_, _ = l.stream.Read(make([]byte, 1))
	return err
}

func (l *listener) Addr() net.Addr { return l.at }
