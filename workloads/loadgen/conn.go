package loadgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"heartbed/workloads"
)

// conn is a connection with one request outstanding at most. One goroutine
// receives; send may be called by another while receive waits.
type conn interface {
	// send lets a request leave and does not wait for its answer. draw is the
	// seed of its random draws. A deadline of zero is none.
	send(draw uint64, deadline time.Time) error
	// receive waits for the answer of the request that was sent last or is
	// sent next. After an error the connection is of no use, except one that
	// comes as answer.fault.
	receive() (answer, error)
	close()
}

// dialer opens connections to a target.
type dialer struct {
	target target
	config Config
	open   func(ctx context.Context, network, address string) (net.Conn, error) // a socket
}

func newDialer(to target, c Config) dialer {
	d := dialer{target: to, config: c, open: c.Dial}
	if d.open == nil {
		d.open = new(net.Dialer).DialContext
	}
	if len(c.Addresses) == 0 {
		return d
	}
	rng := rand.New(rand.NewPCG(workloads.Mix(c.Seed, c.Run), 0))
	var mu sync.Mutex // of rng; connections open at the same time
	socket := d.open
	d.open = func(ctx context.Context, network, _ string) (net.Conn, error) {
		mu.Lock()
		address := c.Addresses[rng.IntN(len(c.Addresses))]
		mu.Unlock()
		return socket(ctx, network, address)
	}
	return d
}

func (d dialer) dial(ctx context.Context) (conn, error) {
	if d.target.grpc {
		return dialGRPC(ctx, d)
	}
	c, err := d.open(ctx, "tcp", d.target.address)
	if err != nil {
		return nil, err
	}
	head := "GET " + d.target.path + " HTTP/1.1\r\nHost: " + d.target.host + "\r\n"
	return &httpConn{
		Conn: c, head: head, draws: d.config.Draws, limited: d.config.Load.Timeout > 0, answers: newResponseReader(c),
	}, nil
}

// httpConn speaks HTTP/1.1 with keep-alive.
type httpConn struct {
	net.Conn
	head    string
	draws   bool
	mu      sync.Mutex // of out: the answer can be there before Write returns
	out     []byte
	answers *responseReader
	limited bool // requests have deadlines
}

func (c *httpConn) send(draw uint64, deadline time.Time) error {
	if c.limited {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out[:0], c.head...)
	if c.draws {
		c.out = append(c.out, "X-Draw: "...)
		c.out = strconv.AppendUint(c.out, draw, 10)
		c.out = append(c.out, "\r\n"...)
	}
	c.out = append(c.out, "\r\n"...)
	_, err := c.Write(c.out)
	return err
}

func (c *httpConn) receive() (answer, error) {
	a, err := c.answers.next()
	if err == nil && c.limited { // a deadline must not end the idle connection
		err = c.SetDeadline(time.Time{})
	}
	return a, err
}

func (c *httpConn) close() { c.Close() }

// timedOut says whether an error of a connection is its deadline.
func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
