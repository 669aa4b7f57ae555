package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/sim"
)

func TestSetup(t *testing.T) {
	plan, err := lanPlan("sim")
	require.NoError(t, err)
	require.Len(t, plan.Nodes, 5)
	require.Len(t, plan.Replicas, 25)
	up, down, err := standAndGo(t.Context(), sim.Backend{}, plan, 3)
	require.NoError(t, err)
	require.Len(t, up, 3)
	require.Len(t, down, 3)
	require.IsNonDecreasing(t, up)
	require.Positive(t, up[0])

	plan.Replicas = plan.Replicas[:1]
	_, _, err = standAndGo(t.Context(), sim.Backend{}, plan, 3)
	require.Error(t, err, "a plan that cannot stand is told")

	var out strings.Builder
	require.NoError(t, printSetup(&out, []time.Duration{2e9, 3e9, 4e9}, []time.Duration{1e8, 2e8, 3e8}))
	require.Regexp(t, `until the session is ready +3.00 +2.00 +4.00`, out.String())
	require.Regexp(t, `until all is removed +0.20 +0.10 +0.30`, out.String())

	out.Reset()
	var stages stageTimes
	for _, ms := range []time.Duration{30, 10, 20} {
		stages.add("dig", ms*time.Millisecond)
		stages.add("think", time.Microsecond)
		stages.add("build", 10*ms*time.Millisecond)
	}
	require.NoError(t, stages.print(&out))
	require.Equal(t, "stages, median s: dig 0.02, build 0.20\n", out.String())
}
