package live

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
)

func TestJudgeShaping(t *testing.T) {
	for name, c := range map[string]struct {
		stats   tc.Stats
		err     error
		fault   string // empty = none
		warning string
	}{
		"nothing to say":  {stats: tc.Stats{Packets: 1000, MaxLate: 2 * time.Millisecond}},
		"nothing shaped":  {},
		"dropped":         {stats: tc.Stats{Packets: 1000, Dropped: 1}, fault: "shaping dropped 1 of 1000 packets"},
		"only dropped":    {stats: tc.Stats{Dropped: 7}, fault: "shaping dropped 7 of 0 packets"},
		"reordered":       {stats: tc.Stats{Packets: 1000, Reordered: 2}, fault: "shaping let 2 of 1000 packets overtake earlier ones"},
		"some late":       {stats: tc.Stats{Packets: 1000, Late: 10, MaxLate: 4 * time.Millisecond}, warning: "10 of 1000 packets were late by more than 3ms, at most by 4ms"},
		"too many late":   {stats: tc.Stats{Packets: 1000, Late: 11}, fault: "measured delays off the scenario: 11 of 1000 packets"},
		"lost as planned": {stats: tc.Stats{Packets: 1000, Lost: 100}},
		"unknown":         {err: errors.New("the process 7 that delays packets ended"), fault: "the process 7 that delays packets ended"},
	} {
		t.Run(name, func(t *testing.T) {
			faults, warnings := judgeShaping(c.stats, c.err)
			requireOne(t, c.fault, faults)
			requireOne(t, c.warning, warnings)
		})
	}
}

// A quota above what the machine has is no error of the kernel's: the plan's
// CPU capacity silently is not there.
func TestQuotaLargerThanTheMachine(t *testing.T) {
	plan := func(change func(*testbed.Plan)) testbed.Plan {
		p := testbedtest.Plan() // two nodes of a core, replicas of one
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		plan    testbed.Plan
		machine float64
		want    []string
	}{
		"fits":           {plan(func(*testbed.Plan) {}), 2, nil},
		"all nodes":      {plan(func(*testbed.Plan) {}), 1, []string{"the nodes have 2 cores in all, this machine has 1"}},
		"one node":       {plan(func(p *testbed.Plan) { p.Nodes[1].Cores = 64 }), 2, []string{"node n2 has 64 cores, more than this machine with 2", "65 cores in all"}},
		"replica":        {plan(func(p *testbed.Plan) { p.App.Server.Threads = 4 }), 2, []string{"a replica may use 4 cores"}},
		"replica, bound": {plan(func(p *testbed.Plan) { p.App.Server.Threads, p.App.Server.LimitCores = 4, 1.5 }), 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := planWarnings(c.plan, c.machine)
			require.Len(t, got, len(c.want))
			for i, want := range c.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

// requireOne wants one text that contains want, or none if want is empty.
func requireOne(t *testing.T, want string, texts []string) {
	t.Helper()
	if want == "" {
		require.Empty(t, texts)
		return
	}
	require.Len(t, texts, 1)
	require.Contains(t, texts[0], want)
}
