package service

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"heartbed/heart"
)

// channels are a caller's gRPC channels to one component. A channel picks
// replicas by itself: it has connections, a turn and counters of its own. So
// the balancer that is in force decides how many there are and which of them a
// request takes, as in the simulator:
//
//   - per connection, with connections kept: a pool, in which a channel is a
//     connection. A request takes the one that was given back last, or opens
//     one, which is closed after it where the pool is full.
//   - least request: one for each proxy thread, drawn at random for each
//     request, because threads count requests apart.
//   - else: one.
type channels struct {
	open  func() (*grpc.ClientConn, error)
	proxy func() (*grpc.ClientConn, error) // opens connections to the Service; nil = there is none
	kept  int                              // connections in the pool; 0 = no pool
	apart int                              // proxy threads, at least 1

	mu       sync.Mutex
	balancer heart.Balancer
	shared   []*grpc.ClientConn // the first is there from the start and asks for the routes
	idle     []*grpc.ClientConn // of the pool
	closed   bool
}

// newChannels opens the first channel. Until told which balancer there is, it
// is the one for which Config.Connections is made.
func newChannels(cfg Config, open, proxy func() (*grpc.ClientConn, error)) (*channels, error) {
	c := &channels{open: open, proxy: proxy, kept: cfg.Connections, apart: cfg.ProxyThreads, balancer: heart.PerConnection}
	return c, c.share(1)
}

// share opens channels until there are n to share.
func (c *channels) share(n int) error {
	for len(c.shared) < n {
		conn, err := c.open()
		if err != nil {
			return err
		}
		c.shared = append(c.shared, conn)
	}
	return nil
}

// use says which balancer there is from now on. Requests under way keep their
// channel.
func (c *channels) use(b heart.Balancer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	if b == heart.LeastRequest {
		errs = append(errs, c.share(c.apart))
	}
	c.balancer = b
	if !c.pools() {
		errs = append(errs, closeEach(c.idle))
		c.idle = nil
	}
	return errors.Join(errs...)
}

func (c *channels) pools() bool {
	return c.balancer == heart.PerConnection && (c.kept > 0 || c.proxy != nil)
}

// connect opens a connection of the pool.
func (c *channels) connect() (*grpc.ClientConn, error) {
	if c.proxy != nil {
		return c.proxy()
	}
	return c.open()
}

// take gives the channel for a request. After the answer it is given back.
func (c *channels) take() (conn *grpc.ClientConn, give func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pools():
		if last := len(c.idle) - 1; last >= 0 {
			conn, c.idle = c.idle[last], c.idle[:last]
		} else if conn, err = c.connect(); err != nil {
			return nil, nil, err
		}
		return conn, func() { c.giveBack(conn) }, nil
	case c.balancer == heart.LeastRequest:
		conn = c.shared[rand.IntN(c.apart)]
	default:
		conn = c.shared[0]
	}
	return conn, func() {}, nil
}

// giveBack keeps a channel of the pool or closes it.
func (c *channels) giveBack(conn *grpc.ClientConn) {
	c.mu.Lock()
	keep := c.pools() && !c.closed && len(c.idle) < c.kept
	if keep {
		c.idle = append(c.idle, conn)
	}
	c.mu.Unlock()
	if !keep {
		_ = conn.Close() // fails only when it is closed already
	}
}

// close closes all channels but those of requests under way, which are closed
// after them.
func (c *channels) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return closeEach(slices.Concat(c.shared, c.idle))
}

func closeEach(conns []*grpc.ClientConn) error {
	var errs []error
	for _, conn := range conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
