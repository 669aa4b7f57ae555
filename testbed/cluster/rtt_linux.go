package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"heartbed/testbed"
	"heartbed/testbed/kube"
)

const (
	probes         = 9 // of a round trip, of which the median counts
	probesParallel = 4
	// A round trip that differs from the plan's by less is the plan's.
	tolerance = 0.1
	slack     = time.Millisecond
)

// way is a round trip that is measured: from an agent to that of a node.
type way struct {
	from, to string // names
	agent    int    // that measures
	at       int    // node measured
	spec     time.Duration
	measured time.Duration
}

func (w way) off() bool {
	return (w.measured - w.spec).Abs() > slack+time.Duration(tolerance*float64(w.spec))
}

// measureRoundTrips measures between all nodes, and from the load generator to
// each. The policies get what was measured.
func (s *session) measureRoundTrips(ctx context.Context) error {
	for i, from := range s.Layout.Nodes {
		s.ways = append(s.ways, way{from: "load generator", to: from.Name, agent: 1, at: i, spec: s.Layout.ClientRoundTrip(i)})
		for j := range s.Layout.Nodes[:i] {
			s.ways = append(s.ways, way{from: s.Layout.Nodes[j].Name, to: from.Name, agent: firstNode + j, at: i, spec: s.Layout.RoundTrip(i, j)})
		}
	}
	if err := s.measure(ctx, func(way) bool { return true }); err != nil {
		return err
	}
	if !s.stand.options.Shape {
		s.take(s.ways)
	}
	return nil
}

// measure measures some of the ways.
func (s *session) measure(ctx context.Context, wanted func(way) bool) error {
	measures, ctx := errgroup.WithContext(ctx)
	measures.SetLimit(probesParallel)
	for k := range s.ways {
		w := &s.ways[k]
		if !wanted(*w) {
			continue
		}
		measures.Go(func() error {
			to, err := kube.Address(s.stand.nodePod(w.at))
			if err == nil {
				w.measured, err = s.stand.clients[w.agent].Measure(ctx, to, probes)
			}
			if err != nil {
				return fmt.Errorf("%s to %s: %w", w.from, w.to, err)
			}
			return nil
		})
	}
	return measures.Wait()
}

// take writes what was measured into the topology, the checks and the notes.
func (s *session) take(ways []way) {
	rtt := make([][]time.Duration, len(s.Layout.Nodes))
	for i, row := range s.Layout.Plan.RTT {
		rtt[i] = slices.Clone(row)
	}
	off, worst := 0, way{}
	for _, w := range ways {
		s.Setup = append(s.Setup, testbed.SetupCheck{
			What: fmt.Sprintf("round trip %s to %s", w.from, w.to), Unit: "ms", Spec: ms(w.spec), Measured: ms(w.measured),
		})
		if i := w.agent - firstNode; i >= 0 {
			rtt[i][w.at], rtt[w.at][i] = w.measured, w.measured
		}
		if w.off() {
			off++
			if (w.measured - w.spec).Abs() > (worst.measured - worst.spec).Abs() {
				worst = w
			}
		}
	}
	s.Layout.Topology.RTT = rtt
	if off > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d round trips are not the plan's, most of all %s to %s: measured %.2f ms, planned %.2f ms; the policies get what was measured",
			off, len(ways), worst.from, worst.to, ms(worst.measured), ms(worst.spec)))
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
