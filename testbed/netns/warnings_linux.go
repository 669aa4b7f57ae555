package netns

import (
	"fmt"
	"runtime"
	"slices"

	"heartbed/tc"
)

// warnings says what a reader of the result must know of the testbed.
func (s *session) warnings(before, after counters) []string {
	p := s.layout.plan
	ws := slices.Clone(s.notes)
	add := func(format string, args ...any) { ws = append(ws, fmt.Sprintf(format, args...)) }
	cores := 0.0
	for _, n := range p.Nodes {
		cores += n.Cores
	}
	if machine := runtime.NumCPU(); cores > float64(machine) {
		add("the nodes have %.4g cores in all, this machine has %d: they get in each other's way where they are busy at the same time; --scale divides CPU and load", cores, machine)
	}
	if p.Network.ProxyThreads > 1 {
		add("network.proxyThreads: a caller here has one least-request counter a replica, not %d", p.Network.ProxyThreads)
	}
	for _, r := range s.layout.replicas {
		_, was := before.of[r.Name]
		if _, is := after.of[r.Name]; !was || !is {
			add("replica %s: its requests are missing from the seen shares, its metrics could not be read", r.Name)
		}
	}
	ws = append(ws, s.shaping()...)
	return append(ws, s.setupSummary()...)
}

// shaping says what the shapers did that the plan did not ask for.
func (s *session) shaping() []string {
	var sum tc.Stats
	for _, shaper := range s.shapers {
		stats, err := shaper.Stats()
		if err != nil {
			return []string{fmt.Sprintf("shaping: %v", err)}
		}
		sum.Packets += stats.Packets
		sum.Dropped += stats.Dropped
		sum.Reordered += stats.Reordered
		sum.Late += stats.Late
		sum.MaxLate = max(sum.MaxLate, stats.MaxLate)
	}
	if sum.Dropped+sum.Reordered+sum.Late == 0 {
		return nil
	}
	return []string{fmt.Sprintf("shaping: of %d packets %d were dropped, %d reordered, %d late by more than %v (at most %v)",
		sum.Packets, sum.Dropped, sum.Reordered, sum.Late, tc.LateAfter, sum.MaxLate)}
}

// setupSummary sums the checks of the set-up up by unit.
func (s *session) setupSummary() []string {
	var ws []string
	for _, unit := range []string{"ms", "cores"} {
		var off []float64
		for _, c := range s.setup {
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
