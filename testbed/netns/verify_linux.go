package netns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"heartbed/testbed"
)

const (
	roundTripProbes   = 9
	roundTripParallel = 4
	roundTripTries    = 3
	// A measured median may differ from the plan by this part of it, or by the
	// slack: what the machine itself adds to a round trip, most of it the two
	// wake-ups of idle processes.
	roundTripTolerance = 0.05
	roundTripSlack     = time.Millisecond
)

// pair is two ends of a link with the round trip the plan gives it.
type pair struct {
	from, to  string // names
	namespace string // of from
	at        netip.AddrPort
	spec      time.Duration
	jitter    time.Duration // standard deviation of one way's
	measured  time.Duration
}

// verifyRoundTrips measures the round trip of every pair of nodes and from the
// load generator to every node, as the time a TCP connection takes to open
// (one round trip), and fails if one is not what the plan says.
func (s *session) verifyRoundTrips(ctx context.Context) (err error) {
	ports := make([]netip.AddrPort, len(s.nodes))
	for i, n := range s.layout.nodes {
		listener, err := listenIn(s.nodes[i], netip.AddrPortFrom(n.addr, 0))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		defer listener.Close()
		ports[i] = listener.Addr().(*net.TCPAddr).AddrPort()
	}
	var pairs []pair
	for i, from := range s.layout.nodes {
		for j := i; j < len(s.layout.nodes); j++ {
			pairs = append(pairs, pair{from: from.Name, to: s.layout.nodes[j].Name, namespace: s.nodes[i], at: ports[j], spec: s.layout.roundTrip(i, j), jitter: s.layout.plan.Network.Jitter.Std()})
		}
	}
	for j, to := range s.layout.nodes {
		pairs = append(pairs, pair{from: "load generator", to: to.Name, namespace: s.client, at: ports[j], spec: s.layout.clientRoundTrip(j)})
	}
	// What is measured is the way, not this program's wait for a CPU.
	restore, priorityErr := realTime()
	if priorityErr == nil {
		defer func() { err = errors.Join(err, restore()) }()
	}
	for range roundTripTries {
		if err := measureOff(ctx, pairs); err != nil {
			return err
		}
	}
	return s.judgePairs(pairs)
}

// measureOff measures the pairs whose round trip is not what it should be: at
// first all of them, then those that other work on the machine got in the way
// of. A delay that is wrong stays so.
func measureOff(ctx context.Context, pairs []pair) error {
	probes, ctx := errgroup.WithContext(ctx)
	probes.SetLimit(roundTripParallel)
	for i := range pairs {
		if p := &pairs[i]; p.measured == 0 || p.off() {
			probes.Go(func() error { return p.measure(ctx) })
		}
	}
	return probes.Wait()
}

// measure takes the median of several probes.
func (p *pair) measure(ctx context.Context) error {
	var took []time.Duration
	for range roundTripProbes {
		began := time.Now()
		conn, err := dialIn(ctx, p.namespace, p.at.String())
		if err != nil {
			return fmt.Errorf("%s to %s: %w", p.from, p.to, err)
		}
		took = append(took, time.Since(began))
		if err := conn.Close(); err != nil {
			return fmt.Errorf("%s to %s: %w", p.from, p.to, err)
		}
	}
	slices.Sort(took)
	p.measured = took[len(took)/2]
	return nil
}

// off says whether the measured round trip is not that of the plan. The median
// of both ways' jitter together is 0.6 standard deviations, and as good as never three.
func (p *pair) off() bool {
	return (p.measured - p.spec).Abs() > roundTripSlack+3*p.jitter+time.Duration(roundTripTolerance*float64(p.spec))
}

// judgePairs notes the measured round trips and fails for those that are not
// what they should be.
func (s *session) judgePairs(pairs []pair) error {
	var faults []error
	for _, p := range pairs {
		s.setup = append(s.setup, testbed.SetupCheck{
			What: fmt.Sprintf("round trip %s to %s", p.from, p.to), Unit: "ms",
			Spec: ms(p.spec), Measured: ms(p.measured),
		})
		if p.off() {
			faults = append(faults, fmt.Errorf("round trip %s to %s: measured %.2f ms, expected %.2f ms", p.from, p.to, ms(p.measured), ms(p.spec)))
		}
	}
	return errors.Join(faults...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const (
	burnTime      = 500 * time.Millisecond
	burnTolerance = 0.25 // of the quota; a period is a fifth of the burn
)

// verifyQuotas lets every node burn CPU, as many at the same time as this
// machine has cores for, and fails if one gets more of the machine than its
// quota. One that gets less has a quota, but other work on the machine is in
// its way, which the result's table of checks shows. A node with as many cores
// as the machine, or more, is bound by the machine and not measured.
func (s *session) verifyQuotas(ctx context.Context) error {
	var faults []error
	for _, together := range burnTogether(s.layout.nodes, float64(runtime.NumCPU())) {
		got := make([]float64, len(together))
		burns, ctx := errgroup.WithContext(ctx)
		for k, i := range together {
			burns.Go(func() (err error) {
				if got[k], err = s.burn(ctx, i); err != nil {
					err = fmt.Errorf("node %s: %w", s.layout.nodes[i].Name, err)
				}
				return err
			})
		}
		if err := burns.Wait(); err != nil {
			return err
		}
		for k, i := range together {
			n := s.layout.nodes[i]
			s.setup = append(s.setup, testbed.SetupCheck{What: "CPU of " + n.Name, Unit: "cores", Spec: n.Cores, Measured: got[k]})
			if got[k] > (1+burnTolerance)*n.Cores {
				faults = append(faults, fmt.Errorf("node %s: measured %.2f cores, expected at most %.2f", n.Name, got[k], n.Cores))
			}
		}
	}
	return errors.Join(faults...)
}

// burnTogether deals the nodes that are smaller than the machine to groups
// that it has the cores for.
func burnTogether(nodes []nodeLayout, machine float64) (groups [][]int) {
	used := 0.0 // by the last group
	for i, n := range nodes {
		if n.Cores >= machine {
			continue
		}
		if len(groups) == 0 || used+n.Cores > machine {
			groups, used = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], i)
		used += n.Cores
	}
	return groups
}

// burn keeps the node's group busy and gives the cores it got.
func (s *session) burn(ctx context.Context, node int) (cores float64, err error) {
	group := s.nodeGroups[node]
	for k := range int(math.Ceil(s.layout.nodes[node].Cores)) {
		p, err := launch(s.nodes[node], s.folder, fmt.Sprintf("burn%d-%d", node+1, k+1), group, nil, "/bin/sh", "-c", "while :; do :; done")
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
	}
	before, err := group.Stats()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause(ctx, burnTime); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := group.Stats()
	if err != nil {
		return 0, err
	}
	return float64(after.Usage-before.Usage) / float64(took), nil
}
