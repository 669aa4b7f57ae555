package sink

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// DefaultMaxAge is how old a connection gets. Proxies open their stream once
// and keep it: without an end of it, replicas that are added later get none.
const DefaultMaxAge = 5 * time.Minute

const (
	// A proxy that sends all its metrics in one message passes gRPC's limit of
	// 4 MiB (envoy issue 37777).
	maxMessage = 32 << 20
	// A connection that was told to end has this long to finish a flush: Envoy
	// leaves its stream open and opens another at the next flush after it broke.
	maxAgeGrace = time.Second
	// A proxy that vanished without a word is noticed within 25 s, about when
	// its last sample expires.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	pingAtMost  = 5 * time.Second // how often a client may ping
	// Streams on one connection: Envoy opens one.
	maxStreamsEach = 16
	handshake      = 10 * time.Second
	// Buffers are small, and windows fixed, because there are thousands of
	// connections on which a few kilobytes come every few seconds.
	readBuffer  = 4 << 10
	writeBuffer = 4 << 10
	window      = 256 << 10
)

// Transport says how clients reach the receiver.
type Transport struct {
	TLS    *tls.Config   // nil = plain text; see TLSFiles
	MaxAge time.Duration // of a connection, give or take a tenth; 0 = DefaultMaxAge
}

// ServerOptions are what a gRPC server of the receiver needs.
func ServerOptions(t Transport) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.ForceServerCodecV2(newLeanCodec()),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: cmp.Or(t.MaxAge, DefaultMaxAge), MaxConnectionAgeGrace: maxAgeGrace, Time: pingAfter, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAtMost, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(maxStreamsEach),
		grpc.ConnectionTimeout(handshake),
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.WaitForHandlers(true),
	}
	if t.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(t.TLS)))
	}
	return options
}

// TLSFiles is the configuration of a server with the certificate and key of
// two PEM files, and, if clients names one, that takes only clients with a
// certificate by an authority in that file. The files are read again when they
// have changed, because certificates in a cluster live for a day; a change that
// cannot be read keeps what is in force.
func TLSFiles(cert, key, clients string) (*tls.Config, error) {
	r := &reloader{files: [3]string{cert, key, clients}}
	if err := r.load(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: r.config}, nil
}

// reloader keeps the configuration that its files say.
type reloader struct {
	files [3]string // certificate, key, authorities of clients or ""

	mu      sync.Mutex // of what follows
	changed [3]time.Time
	current *tls.Config
}

func (r *reloader) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	_ = r.load() // keeps what is in force
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current, nil
}

// load reads the files if one has changed since.
func (r *reloader) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changed [3]time.Time
	for i, file := range r.files {
		if file == "" {
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("read certificates: %w", err)
		}
		changed[i] = info.ModTime()
	}
	if changed == r.changed {
		return nil
	}
	next, err := readTLS(r.files)
	if err != nil {
		return fmt.Errorf("read certificates: %w", err)
	}
	r.changed, r.current = changed, next
	return nil
}

func readTLS(files [3]string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	if files[2] == "" {
		return c, nil
	}
	pem, err := os.ReadFile(files[2])
	if err != nil {
		return nil, err
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New(files[2] + ": found no certificate in PEM")
	}
	return c, nil
}
