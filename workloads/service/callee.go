package service

import (
	"cmp"
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
	// patience bounds the retries before a component's first answer, for
	// callers without a deadline. It exceeds the 15 s that grpc-go waits for
	// an xDS resource.
	patience   = 30 * time.Second
	retryEvery = 100 * time.Millisecond
)

// callee is a called component. Which replica answers is the balancer's
// affair, below a channel.
type callee struct {
	name     string
	index    int // its place in the call tree
	caller   string
	channels *channels
	reached  atomic.Bool // a call has succeeded
}

// dialCallees opens connections to the components that cfg's replica calls.
func dialCallees(cfg Config, extra []grpc.DialOption) (map[string]*callee, error) {
	index := map[string]int{}
	for i, c := range cfg.App.Components {
		if index[c.Name] = i; cfg.Gateway || cfg.BehindGateway {
			index[c.Name]++ // the gateway is the first
		}
	}
	callees := map[string]*callee{}
	for _, s := range stepsOf(cfg) {
		for _, name := range append(workloads.SortedNames(s.Choose), s.Call...) {
			if callees[name] != nil {
				continue
			}
			c := &callee{name: name, index: index[name], caller: cfg.Replica}
			var err error
			if c.channels, err = newChannels(cfg, opener(cfg.targetOf(name), extra), proxyOpener(cfg.Services[name], extra)); err != nil {
				return nil, errors.Join(fmt.Errorf("connect to component %s: %w", name, err), closeAll(callees))
			}
			callees[name] = c
		}
	}
	return callees, nil
}

// targetOf is the gRPC target of a component's routes.
func (c Config) targetOf(component string) string {
	return cmp.Or(c.Targets[component], "xds:///"+component)
}

// proxyOpener opens connections to a Service; nil without one.
func proxyOpener(address string, extra []grpc.DialOption) func() (*grpc.ClientConn, error) {
	if address == "" {
		return nil
	}
	return opener("passthrough:///"+address, extra)
}

// opener opens channels to a target.
func opener(target string, extra []grpc.DialOption) func() (*grpc.ClientConn, error) {
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
	return func() (*grpc.ClientConn, error) {
		conn, err := grpc.NewClient(target, options...)
		if err != nil {
			return nil, err
		}
		conn.Connect() // ahead of the first request
		return conn, nil
	}
}

func closeAll(callees map[string]*callee) error {
	var errs []error
	for _, c := range callees {
		errs = append(errs, c.channels.close())
	}
	return errors.Join(errs...)
}

// call makes one call. While everything is starting, routes may be lacking or
// a replica may not listen yet: until the first success Unavailable is retried.
// Later it is an error like any other.
func (c *callee) call(ctx context.Context, draws workloads.Draws) error {
	conn, give, err := c.channels.take()
	if err != nil {
		return status.Errorf(codes.Internal, "%s: open a channel: %v", c.name, err)
	}
	defer give()
	ctx = metadata.AppendToOutgoingContext(ctx, CallerKey, c.caller, DrawKey, strconv.FormatUint(draws.Seed(), 10))
	started := time.Now()
	for {
		err := conn.Invoke(ctx, Method, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{})
		if err == nil {
			c.reached.Store(true)
			return nil
		}
		s := status.Convert(err)
		if s.Code() != codes.Unavailable || c.reached.Load() || time.Since(started) > patience {
			return status.Errorf(s.Code(), "%s: %s", c.name, s.Message())
		}
		select {
		case <-ctx.Done():
			return status.Errorf(status.FromContextError(ctx.Err()).Code(), "%s: %s", c.name, s.Message())
		case <-time.After(retryEvery):
		}
	}
}
