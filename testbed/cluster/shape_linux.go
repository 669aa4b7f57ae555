package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"heartbed/tc"
	"heartbed/testbed/kube"
)

// With Options.Shape each node of the plan delays what it forwards to its pods
// by half of what a round trip lacks. The load generator stands on another node,
// which delays nothing: the whole of its round trip is on the way there.

// shapeLinks puts into force what the cluster's round trips lack. It needs the
// measured ones, and the addresses of the replicas.
func (s *session) shapeLinks(ctx context.Context) error {
	if !s.stand.options.Shape {
		return nil
	}
	lacks, toClient := s.lacks()
	client, err := kube.Address(s.stand.pods[1])
	if err != nil {
		return err
	}
	var addrs [][]netip.Addr // by node
	for i, n := range s.Layout.Nodes {
		own, err := kube.Address(s.stand.nodePod(i))
		if err != nil {
			return err
		}
		addrs = append(addrs, append([]netip.Addr{own}, n.Addrs...))
	}
	jitter := s.Layout.Plan.Network.Jitter.Std()
	for i, n := range s.Layout.Nodes {
		shaper, err := s.stand.shaperOf(i).Shape(ctx, client, s.Layout.Plan.Seed+uint64(i))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		s.Shapers = append(s.Shapers, shaper)
		links := map[netip.Addr]tc.Link{client: {RTT: 2 * toClient[i]}}
		for j := range s.Layout.Nodes {
			for _, a := range addrs[j] {
				links[a] = tc.Link{RTT: lacks[i][j], Jitter: jitter}
			}
		}
		maps.DeleteFunc(links, func(_ netip.Addr, l tc.Link) bool { return l == tc.Link{} })
		if err := shaper.Apply(ctx, links); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// lacks is by how much the plan's round trips are longer than the measured ones.
func (s *session) lacks() (between [][]time.Duration, toClient []time.Duration) {
	n := len(s.Layout.Nodes)
	for i := range n {
		row := make([]time.Duration, n)
		row[i] = s.Layout.RoundTrip(i, i)
		between = append(between, row)
	}
	toClient = make([]time.Duration, n)
	for _, w := range s.ways {
		lack := max(0, w.spec-w.measured)
		if i := w.agent - firstNode; i >= 0 {
			between[i][w.at], between[w.at][i] = lack, lack
		} else {
			toClient[w.at] = lack
		}
	}
	return between, toClient
}

const verifyTries = 3

// verifyShape fails if a round trip is not the plan's now. Those that other work
// got in the way of are measured again.
func (s *session) verifyShape(ctx context.Context) error {
	if !s.stand.options.Shape {
		return nil
	}
	wanted := func(way) bool { return true }
	for range verifyTries {
		if err := s.measure(ctx, wanted); err != nil {
			return err
		}
		wanted = way.off
	}
	var faults []error
	for _, w := range s.ways {
		if w.off() {
			faults = append(faults, fmt.Errorf("round trip %s to %s: measured %.2f ms, expected %.2f ms", w.from, w.to, ms(w.measured), ms(w.spec)))
		}
	}
	s.take(s.ways)
	return errors.Join(faults...)
}
