package live

import (
	"fmt"
	"runtime"
	"slices"

	"heartbed/tc"
	"heartbed/testbed"
)

// warnings says what a reader of the result must know of the testbed.
func (s *Session) warnings(before, after Counters) []string {
	ws := slices.Clone(s.Notes)
	if !s.Remote {
		ws = append(ws, planWarnings(s.Layout.Plan, float64(runtime.NumCPU()))...)
	}
	for _, r := range s.Layout.Replicas {
		_, was := before.Of[r.Name]
		if _, is := after.Of[r.Name]; !was || !is {
			ws = append(ws, fmt.Sprintf("replica %s: its requests are missing from the seen shares, its metrics could not be read", r.Name))
		}
	}
	return append(ws, s.setupSummary()...)
}

// planWarnings says what a machine of so many cores cannot do as the plan says.
func planWarnings(p testbed.Plan, machine float64) (ws []string) {
	add := func(format string, args ...any) { ws = append(ws, fmt.Sprintf(format, args...)) }
	cores, largest := 0.0, testbed.Node{}
	for _, n := range p.Nodes {
		cores += n.Cores
		if n.Cores > largest.Cores {
			largest = n
		}
	}
	if largest.Cores > machine {
		add("node %s has %.4g cores, more than this machine with %.4g: it never gets them; --scale divides CPU and load", largest.Name, largest.Cores, machine)
	}
	if cores > machine {
		add("the nodes have %.4g cores in all, this machine has %.4g: they get in each other's way where they are busy at the same time; --scale divides CPU and load", cores, machine)
	}
	if used := usable(p, largest); used > machine {
		add("a replica may use %.4g cores, more than this machine has: its utilisation cannot reach 1", used)
	}
	return ws
}

// tooLate is the part of the packets that may be late. If more are, a P99 says
// more about this machine than about the plan.
const tooLate = 0.01

// shaped sums up what the shapers did since they were made.
func (s *Session) shaped() (tc.Stats, error) {
	var sum tc.Stats
	for _, shaper := range s.Shapers {
		stats, err := shaper.Stats()
		if err != nil {
			return sum, err
		}
		sum.Packets += stats.Packets
		sum.Dropped += stats.Dropped
		sum.Reordered += stats.Reordered
		sum.Late += stats.Late
		sum.MaxLate = max(sum.MaxLate, stats.MaxLate)
	}
	return sum, nil
}

// judgeShaping says what the shapers did that the plan did not ask for. A plan
// asks for no loss and for no packet before an earlier one.
func judgeShaping(sum tc.Stats, err error) (faults, warnings []string) {
	if err != nil {
		faults = append(faults, fmt.Sprintf("shaping: %v", err))
	}
	if sum.Dropped > 0 {
		faults = append(faults, fmt.Sprintf("shaping dropped %d of %d packets: a queue was full", sum.Dropped, sum.Packets))
	}
	if sum.Reordered > 0 {
		faults = append(faults, fmt.Sprintf("shaping let %d of %d packets overtake earlier ones", sum.Reordered, sum.Packets))
	}
	late := fmt.Sprintf("%d of %d packets were late by more than %v, at most by %v", sum.Late, sum.Packets, tc.LateAfter, sum.MaxLate)
	switch {
	case float64(sum.Late) > tooLate*float64(sum.Packets):
		faults = append(faults, "measured delays off the scenario: "+late)
	case sum.Late > 0:
		warnings = append(warnings, "shaping: "+late)
	}
	return faults, warnings
}

// setupSummary sums the checks of the set-up up by unit.
func (s *Session) setupSummary() []string {
	var ws []string
	for _, unit := range []string{"ms", "cores"} {
		var off []float64
		for _, c := range s.Setup {
			if c.Unit == unit {
				off = append(off, c.Measured-c.Spec)
			}
		}
		if len(off) > 0 {
			ws = append(ws, fmt.Sprintf("set-up: %d values measured before the load are off by %+.2f to %+.2f %s", len(off), slices.Min(off), slices.Max(off), unit))
		}
	}
	return ws
}
