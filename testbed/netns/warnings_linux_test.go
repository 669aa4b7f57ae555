package netns

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
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
