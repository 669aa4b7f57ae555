package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"heartbed/testbed/live"
)

// verifyRoundTrips measures the round trip of every pair of nodes and from the
// load generator to every node, and fails if one is not what the plan says.
func (s *session) verifyRoundTrips(ctx context.Context) (err error) {
	ports := make([]string, len(s.nodes))
	for i, n := range s.Layout.Nodes {
		listener, err := live.ListenIn(s.nodes[i], netip.AddrPortFrom(n.Addr, 0))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		defer listener.Close()
		ports[i] = listener.Addr().String()
	}
	var pairs []live.Pair
	for i, from := range s.Layout.Nodes {
		for j := i; j < len(s.Layout.Nodes); j++ {
			pairs = append(pairs, live.Pair{
				From: from.Name, To: s.Layout.Nodes[j].Name, Dial: live.DialIn(s.nodes[i]), At: ports[j],
				Spec: s.Layout.RoundTrip(i, j), Jitter: s.Layout.Plan.Network.Jitter.Std(),
			})
		}
	}
	for j, to := range s.Layout.Nodes {
		pairs = append(pairs, live.Pair{From: "load generator", To: to.Name, Dial: s.Dial, At: ports[j], Spec: s.Layout.ClientRoundTrip(j)})
	}
	return s.VerifyRoundTrips(ctx, pairs)
}

// verifyQuotas lets loops without end ask for all the CPU of a node.
func (s *session) verifyQuotas(ctx context.Context) error {
	return s.VerifyQuotas(ctx, func(node, processes int) (func() error, error) {
		var loops []*process
		stop := func() error {
			var errs []error
			for _, p := range loops {
				errs = append(errs, p.stop())
			}
			return errors.Join(errs...)
		}
		for k := range processes {
			p, err := launch(s.nodes[node], s.folder, fmt.Sprintf("burn%d-%d", node+1, k+1), s.NodeGroups[node], nil, "/bin/sh", "-c", "while :; do :; done")
			if err != nil {
				return nil, errors.Join(err, stop())
			}
			loops = append(loops, p)
		}
		return stop, nil
	})
}
