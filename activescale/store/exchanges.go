package store

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
)

// countExchanges counts at the clients of single nodes, where a command or a
// pipeline is one round trip.
func (r *Redis) countExchanges() {
	hook := exchanges{r.m}
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		return
	}
	r.client.AddHook(hook)
}

type exchanges struct{ m *Measures }

func (e exchanges) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (e exchanges) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e.m.exchanges.Inc()
		return next(ctx, cmd)
	}
}

func (e exchanges) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		e.m.exchanges.Inc()
		return next(ctx, cmds)
	}
}
