package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"heartbed/tc"
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

// Pair is two ends of a link with the round trip the plan gives it.
type Pair struct {
	From, To string   // names
	Dial     DialFunc // from the first
	At       string   // an open port of the second
	Spec     time.Duration
	Jitter   time.Duration // standard deviation of one way's
	measured time.Duration
}

// VerifyRoundTrips measures the round trips of pairs, as the time a TCP
// connection takes to open (one round trip), and fails if one is not what the
// plan says.
func (s *Session) VerifyRoundTrips(ctx context.Context, pairs []Pair) (err error) {
	// What is measured is the way, not this program's wait for a CPU.
	restore, priorityErr := RealTime()
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
func measureOff(ctx context.Context, pairs []Pair) error {
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
func (p *Pair) measure(ctx context.Context) error {
	var took []time.Duration
	for range roundTripProbes {
		began := time.Now()
		conn, err := p.Dial(ctx, p.At)
		if err != nil {
			return fmt.Errorf("%s to %s: %w", p.From, p.To, err)
		}
		took = append(took, time.Since(began))
		if err := conn.Close(); err != nil {
			return fmt.Errorf("%s to %s: %w", p.From, p.To, err)
		}
	}
	slices.Sort(took)
	p.measured = took[len(took)/2]
	return nil
}

// off says whether the measured round trip is not that of the plan. The median
// of both ways' jitter together is 0.6 standard deviations, and as good as never three.
func (p *Pair) off() bool {
	return (p.measured - p.Spec).Abs() > roundTripSlack+3*p.Jitter+time.Duration(roundTripTolerance*float64(p.Spec))
}

// judgePairs notes the measured round trips and fails for those that are not
// what they should be.
func (s *Session) judgePairs(pairs []Pair) error {
	var faults []error
	for _, p := range pairs {
		s.Setup = append(s.Setup, testbed.SetupCheck{
			What: fmt.Sprintf("round trip %s to %s", p.From, p.To), Unit: "ms",
			Spec: ms(p.Spec), Measured: ms(p.measured),
		})
		if p.off() {
			faults = append(faults, fmt.Errorf("round trip %s to %s: measured %.2f ms, expected %.2f ms", p.From, p.To, ms(p.measured), ms(p.Spec)))
		}
	}
	return errors.Join(faults...)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

const (
	burnPeriods   = 5
	burnTolerance = 0.25 // of the quota
)

// BurnFunc lets so many processes ask for all the CPU of node i until stop is
// called.
type BurnFunc func(node, processes int) (stop func() error, err error)

// VerifyQuotas lets every node burn CPU, as many at the same time as this
// machine has cores for, and fails if one gets more of the machine than its
// quota. One that gets less has a quota, but other work on the machine is in
// its way, which the result's table of checks shows. A node with as many cores
// as the machine, or more, is bound by the machine and not measured.
func (s *Session) VerifyQuotas(ctx context.Context, burn BurnFunc) error {
	var faults []error
	for _, together := range burnTogether(s.Layout.Nodes, float64(runtime.NumCPU())) {
		got := make([]float64, len(together))
		burns, ctx := errgroup.WithContext(ctx)
		for k, i := range together {
			burns.Go(func() (err error) {
				if got[k], err = s.burn(ctx, i, burn); err != nil {
					err = fmt.Errorf("node %s: %w", s.Layout.Nodes[i].Name, err)
				}
				return err
			})
		}
		if err := burns.Wait(); err != nil {
			return err
		}
		for k, i := range together {
			n := s.Layout.Nodes[i]
			s.Setup = append(s.Setup, testbed.SetupCheck{What: "CPU of " + n.Name, Unit: "cores", Spec: n.Cores, Measured: got[k]})
			if got[k] > (1+burnTolerance)*n.Cores {
				faults = append(faults, fmt.Errorf("node %s: measured %.2f cores, expected at most %.2f", n.Name, got[k], n.Cores))
			}
		}
	}
	return errors.Join(faults...)
}

// burnTogether deals the nodes that are smaller than the machine to groups
// that it has the cores for.
func burnTogether(nodes []Node, machine float64) (groups [][]int) {
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
func (s *Session) burn(ctx context.Context, node int, burn BurnFunc) (cores float64, err error) {
	group := s.NodeGroups[node]
	stop, err := burn(node, int(math.Ceil(s.Layout.Nodes[node].Cores)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	before, err := group.Stats()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	period := cmp.Or(s.Layout.Plan.App.Server.Period.Std(), tc.DefaultPeriod)
	if err := Pause(ctx, max(burnPeriods*period, 200*time.Millisecond)); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := group.Stats()
	if err != nil {
		return 0, err
	}
	return float64(after.Usage-before.Usage) / float64(took), nil
}
