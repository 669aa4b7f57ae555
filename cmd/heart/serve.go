package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// serve opens the program's ports: what it tells of itself and, over xDS, its
// tables. stop closes them.
func (c *controller) serve() (stop func() error, err error) {
	l, err := net.Listen("tcp", c.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: c.handler(), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(l) }()
	c.log.Info("listening", "address", l.Addr().String())
	running := 1
	if c.xds != nil {
		tables, err := net.Listen("tcp", c.config.XDS)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen: %w", err), server.Close())
		}
		go func() { failed <- c.xds.server.Serve(tables) }()
		c.log.Info("serving xDS", "address", tables.Addr().String())
		running++
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), applyTime)
		defer cancel()
		err := server.Shutdown(ctx)
		if c.xds != nil {
			c.xds.server.Stop()
		}
		for range running {
			if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
				err = errors.Join(err, e)
			}
		}
		return err
	}, nil
}

func (c *controller) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := c.notReady(); reason != "" {
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// notReady says why callers should not come here yet. One that stands by for
// the leader is ready when it knows the cluster, but over xDS only the leader
// has a table to give.
func (c *controller) notReady() string {
	if !c.cluster.isSynced() {
		return "the cluster is not known yet"
	}
	if c.xds != nil && c.inForce() == nil {
		return "no routing table yet"
	}
	return ""
}
