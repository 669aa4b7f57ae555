package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
	"heartbed/testbed/netns"
	"heartbed/testbed/testbedtest"
)

// After its second cycle the shares that real callers send are those of
// HEART's tables within three points, on nodes of unequal speed. Four
// thousand requests: chance alone makes 0.8 points.
func TestSharesOfHeartOnRealProcesses(t *testing.T) {
	testbedtest.Require(t, "netns", netns.Backend{}.Check(t.Context()))
	out, journals := t.TempDir(), t.TempDir()
	p := start(t, journals, nil, "run", "--file", "testdata/shares.yaml", "--backend", "netns", "--alone", "--out", out)
	require.Equal(t, cli.Done, p.end(), p.stderr.String())

	raw, err := os.ReadFile(filepath.Join(out, "results.jsonl"))
	require.NoError(t, err)
	var r experiments.Result
	require.NoError(t, json.Unmarshal(raw, &r))
	require.Equal(t, experiments.Valid, r.Verdict, r.Reasons)
	all := int64(0)
	uneven := false
	for _, s := range r.Shares {
		if s.From != "gateway@n1" {
			continue
		}
		require.NotNil(t, s.Intended, s.To)
		require.InDelta(t, *s.Intended, s.Seen, 0.03, s.To)
		all += s.Requests
		uneven = uneven || math.Abs(*s.Intended-1.0/3) > 0.05
	}
	require.GreaterOrEqual(t, all, int64(3800))
	require.True(t, uneven, "the fast node gets more: %v", r.Shares)
}
