// Package agent is our hand in a cluster whose nodes we cannot touch: a small
// server in a pod that opens and takes connections there, measures round trips
// from there and offers load from there, for a program outside that reaches it
// over one connection. Streams of that connection are told apart by yamux; each
// begins with a request and its answer, in JSON.
//
// Whoever can connect may use it as a proxy: it must listen where only its pod
// and the API server's port-forward can reach it, the loopback.
package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"heartbed/tc"
	"heartbed/workloads/loadgen"
	"heartbed/workloads/probe"
)

// Ports of an agent.
const (
	Port       = 7002 // of the loopback
	AnswerPort = 7003 // open, for other agents to measure the way to
)

// request is what a stream of the client begins with; one of its fields is set.
type request struct {
	Dial    string          `json:",omitempty"` // host:port; then the stream is the connection
	Listen  string          `json:",omitempty"` // host:port; then each connection there is a stream of the agent
	Measure *measurement    `json:",omitempty"`
	Load    *loadgen.Config `json:",omitempty"` // the end of the stream ends it
	Shape   *shaping        `json:",omitempty"` // so does it end this; then orders and answers
}

type measurement struct {
	Target  probe.Target
	Options probe.Options
}

// answer is what the agent says first.
type answer struct {
	Error  string
	Listen string          `json:",omitempty"` // where it listens
	RTT    time.Duration   `json:",omitempty"`
	Load   *loadgen.Result `json:",omitempty"`
	Stats  *tc.Stats       `json:",omitempty"`
}

// longest is the longest message in bytes: a load with a recorded rate.
const longest = 16 << 20

func send(w io.Writer, message any) error {
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...))
	return err
}

func receive(r io.Reader, message any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > longest {
		return fmt.Errorf("found a message of %d bytes, expected at most %d", n, longest)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(r, raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, message)
}

// settings of both ends: a client that is gone is noticed within half a minute.
func settings() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout = 10*time.Second, 20*time.Second
	c.LogOutput = io.Discard // every error it logs is also returned
	return c
}

// pipe passes on what comes from either end until one has no more to say.
func pipe(a, b io.ReadWriteCloser) {
	var both sync.WaitGroup
	for _, way := range [][2]io.ReadWriteCloser{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // the end of a connection, of whatever kind
			way[0].Close()
			way[1].Close()
		})
	}
	both.Wait()
}

// Answer takes connections and closes them, for others to measure the way
// here, until ctx ends.
func Answer(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		conn.Close()
	}
}

// Serve serves all clients that connect until ctx ends.
func Serve(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take clients: %w", err)
		}
		clients.Go(func() { serveClient(ctx, conn) })
	}
}

// serveClient ends with its connection, and so does all that it asked for.
func serveClient(ctx context.Context, conn net.Conn) {
	session, err := yamux.Server(conn, settings())
	if err != nil {
		conn.Close()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { session.Close() })()
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			cancel()
			return
		}
		streams.Go(func() {
			defer stream.Close()
			serveStream(ctx, session, stream)
		})
	}
}

func serveStream(ctx context.Context, session *yamux.Session, stream *yamux.Stream) {
	var q request
	if err := receive(stream, &q); err != nil {
		return // the client knows
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	switch {
	case q.Dial != "":
		dial(ctx, stream, q.Dial)
	case q.Listen != "":
		listen(ctx, session, stream, q.Listen)
	case q.Measure != nil:
		rtt, _, err := probe.Measure(ctx, q.Measure.Target, q.Measure.Options)
		reply(stream, answer{RTT: rtt}, err)
	case q.Load != nil:
		go func() {
			_, _ = stream.Read(make([]byte, 1)) // returns when the client has gone
			cancel()
		}()
		result, err := loadgen.Run(ctx, *q.Load)
		reply(stream, answer{Load: &result}, err)
	case q.Shape != nil:
		shape(ctx, stream, *q.Shape)
	default:
		reply(stream, answer{}, errors.New("found a request for nothing that this agent knows; is the image older than this program?"))
	}
}

// reply says what came out. A client that does not hear it has gone.
func reply(stream io.Writer, a answer, err error) {
	if err != nil {
		a = answer{Error: err.Error()}
	}
	_ = send(stream, a)
}

// dialLimit is how long the other side of a connection may take to answer.
const dialLimit = 10 * time.Second

func dial(ctx context.Context, stream *yamux.Stream, address string) {
	conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "tcp", address)
	reply(stream, answer{}, err)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	pipe(conn, stream)
}

// listen lasts as long as its stream.
func listen(ctx context.Context, session *yamux.Session, stream *yamux.Stream, address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		reply(stream, answer{}, err)
		return
	}
	reply(stream, answer{Listen: l.Addr().String()}, nil)
	go func() {
		_, _ = stream.Read(make([]byte, 1)) // returns when the client has gone
		l.Close()
		stream.Close() // says that the port is free
	}()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer conn.Close()
			out, err := session.OpenStream()
			if err != nil {
				return
			}
			defer out.Close()
			pipe(conn, out)
		})
	}
}

// target is the answering port of the agent at an address.
func target(to netip.Addr) probe.Target {
	return probe.Target{Name: to.String(), Addr: to, Port: AnswerPort}
}
