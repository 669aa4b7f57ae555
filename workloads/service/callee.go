package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // the scheme of the targets
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/workloads"
)

const (
	// A callee that hangs or whose link is dead is noticed within 12 s; 10 s
	// is the least that grpc-go allows.
	pingAfter   = 10 * time.Second
	pingTimeout = 2 * time.Second
	// patience bounds the retries before a connection's first success, for
	// callers without a deadline. It exceeds the 15 s that grpc-go waits for
	// an xDS resource.
	patience   = 30 * time.Second
	retryEvery = 100 * time.Millisecond
)

// callee is a called component. Which replica answers is the balancer's
// affair, below a connection.
type callee struct {
	name   string
	index  int // in the call tree: its place in the application, from 1
	caller string
	conns  []*connection
	turn   atomic.Uint64
}

type connection struct {
	*grpc.ClientConn
	reached atomic.Bool // a call has succeeded
}

// dialCallees opens connections to the components that cfg's replica calls.
func dialCallees(cfg Config, extra []grpc.DialOption) (map[string]*callee, error) {
	index := map[string]int{}
	for i, c := range cfg.App.Components {
		index[c.Name] = i + 1 // 0 is the gateway
	}
	callees := map[string]*callee{}
	for _, s := range stepsOf(cfg) {
		for _, name := range append(workloads.SortedNames(s.Choose), s.Call...) {
			if callees[name] != nil {
				continue
			}
			c := &callee{name: name, index: index[name], caller: cfg.Replica}
			callees[name] = c
			if err := c.dial(cfg, extra); err != nil {
				return nil, errors.Join(fmt.Errorf("connect to component %s: %w", name, err), closeAll(callees))
			}
		}
	}
	return callees, nil
}

func (c *callee) dial(cfg Config, extra []grpc.DialOption) error {
	target := cfg.Targets[c.name]
	if target == "" {
		target = "xds:///" + c.name
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithIdleTimeout(0), // an idle channel would forget its routes
		// A replica that restarts is found again within seconds, not within
		// the two minutes of the default.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryEvery, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, extra...)
	for range cfg.Connections {
		conn, err := grpc.NewClient(target, options...)
		if err != nil {
			return err
		}
		conn.Connect() // ahead of the first request
		c.conns = append(c.conns, &connection{ClientConn: conn})
	}
	return nil
}

func closeAll(callees map[string]*callee) error {
	var errs []error
	for _, c := range callees {
		for _, conn := range c.conns {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}

// call makes one call. While everything is starting, a connection may lack
// routes or a callee may not listen yet: until its first success Unavailable
// is retried. Later it is an error like any other.
func (c *callee) call(ctx context.Context, draws workloads.Draws) error {
	conn := c.conns[c.turn.Add(1)%uint64(len(c.conns))]
	ctx = metadata.AppendToOutgoingContext(ctx, CallerKey, c.caller, DrawKey, strconv.FormatUint(draws.Seed(), 10))
	started := time.Now()
	for {
		err := conn.Invoke(ctx, Method, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{})
		if err == nil {
			conn.reached.Store(true)
			return nil
		}
		s := status.Convert(err)
		if s.Code() != codes.Unavailable || conn.reached.Load() || time.Since(started) > patience {
			return status.Errorf(s.Code(), "%s: %s", c.name, s.Message())
		}
		select {
		case <-ctx.Done():
			return status.Errorf(status.FromContextError(ctx.Err()).Code(), "%s: %s", c.name, s.Message())
		case <-time.After(retryEvery):
		}
	}
}
