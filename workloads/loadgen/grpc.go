package loadgen

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// grpcMethod is what every service of a testbed answers.
const grpcMethod = "/heartbed.Workload/Call"

// deadlineSlack tells our own deadline, which the server knows too and may keep
// a little earlier, from that of a service further on.
const deadlineSlack = 5 * time.Millisecond

// grpcConn is a channel of its own, so that connections mean the same for
// both protocols. A call that fails leaves it usable: grpc-go connects again.
type grpcConn struct {
	channel *grpc.ClientConn
	caller  string
	calls   chan grpcCall // of the one request that may be outstanding
	closed  chan struct{}
	once    sync.Once
}

type grpcCall struct {
	draw     uint64
	deadline time.Time
}

func dialGRPC(ctx context.Context, d dialer) (conn, error) {
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if d.config.Dial != nil || len(d.config.Addresses) > 0 {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return d.open(ctx, "tcp", address)
		}))
	}
	channel, err := grpc.NewClient(d.target.address, options...)
	if err != nil {
		return nil, err
	}
	if err := connect(ctx, channel); err != nil {
		channel.Close()
		return nil, err
	}
	return &grpcConn{channel: channel, caller: d.config.Caller, calls: make(chan grpcCall, 1), closed: make(chan struct{})}, nil
}

// connect waits until the channel can take calls; one failed attempt is an
// error, as it is with a plain connection.
func connect(ctx context.Context, channel *grpc.ClientConn) error {
	channel.Connect()
	for {
		switch state := channel.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("connect to %s: %s", channel.Target(), state)
		default:
			if !channel.WaitForStateChange(ctx, state) {
				return ctx.Err()
			}
		}
	}
}

// send hands the call to the receiving goroutine: opening a stream can block.
func (c *grpcConn) send(draw uint64, deadline time.Time) error {
	c.calls <- grpcCall{draw, deadline}
	return nil
}

func (c *grpcConn) receive() (answer, error) {
	select {
	case <-c.closed:
		return answer{}, net.ErrClosed
	case call := <-c.calls:
		return c.call(call)
	}
}

func (c *grpcConn) call(call grpcCall) (answer, error) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-draw", strconv.FormatUint(call.draw, 10))
	if c.caller != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-caller", c.caller)
	}
	if !call.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, call.deadline)
		defer cancel()
	}
	var out wrapperspb.BytesValue
	err := c.channel.Invoke(ctx, grpcMethod, &wrapperspb.BytesValue{}, &out)
	if status.Code(err) == codes.DeadlineExceeded && !call.deadline.IsZero() && time.Until(call.deadline) < deadlineSlack {
		err = context.DeadlineExceeded
	}
	return answer{ok: err == nil, fault: err, bytes: int64(len(out.GetValue()))}, nil
}

func (c *grpcConn) close() {
	c.once.Do(func() {
		close(c.closed)
		c.channel.Close() // ends a call that is outstanding
	})
}
