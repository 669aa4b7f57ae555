// Package loadgentest has servers with a known answer, against which a load
// generator can be judged.
package loadgentest

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Server answers HTTP/1.1 requests on loopback, each connection on its own.
type Server struct {
	URL      string
	Address  string
	began    time.Time
	listener net.Listener
	wait     sync.WaitGroup
	stop     context.Context
	cancel   context.CancelFunc

	mu    sync.Mutex
	conns map[net.Conn]bool
}

// Stall describes a server that takes Service for a request and does nothing
// at all for Length every Every, the first time after First.
type Stall struct {
	Service, Length, Every, First time.Duration
}

// until is when a request that arrives at t is answered, both since the start.
func (s Stall) until(t time.Duration) time.Duration {
	if s.Length > 0 && t >= s.First {
		if into := (t - s.First) % s.Every; into < s.Length {
			t += s.Length - into
		}
	}
	return t + s.Service
}

// Start starts a server that answers at once, or as slowly as the stall says.
func Start(s Stall) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &Server{
		URL: "http://" + l.Addr().String() + "/", Address: l.Addr().String(),
		began: time.Now(), listener: l, conns: map[net.Conn]bool{},
	}
	server.stop, server.cancel = context.WithCancel(context.Background())
	server.wait.Go(func() { server.accept(s) })
	return server, nil
}

// Close ends the server and its connections.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.cancel()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
	return err
}

func (s *Server) accept(stall Stall) {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file to be had just now
			time.Sleep(time.Millisecond)
			continue
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wait.Go(func() {
			s.serve(c, stall)
			c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

var reply = []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

func (s *Server) serve(c net.Conn, stall Stall) {
	in := bufio.NewReaderSize(c, 1024)
	for s.stop.Err() == nil {
		if !readRequest(in) {
			return
		}
		if now := time.Since(s.began); stall.until(now) > now {
			select {
			case <-time.After(stall.until(now) - now):
			case <-s.stop.Done():
				return
			}
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

// readRequest reads the head of a request without a body.
func readRequest(in *bufio.Reader) bool {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return false
		}
		if len(line) <= 2 { // \r\n
			return true
		}
	}
}
