package experiments

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart/policy"
)

// tick is a clock that moves a millisecond each time it is read.
func tick() func() time.Time {
	var reads int64
	return func() time.Time { reads++; return time.UnixMilli(reads) }
}

// The output of every policy on one recording, byte for byte.
func TestAllocateGolden(t *testing.T) {
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) {
			a, err := Allocate("testdata/allocate/motivation.yaml", name, nil, tick())
			require.NoError(t, err)
			text, err := json.MarshalIndent(a, "", "  ")
			require.NoError(t, err)
			golden(t, filepath.Join("testdata/allocate", name+".json"), append(text, '\n'))
			for _, r := range a.Routes {
				sum := 0.0
				for _, s := range r.Shares {
					sum += s.Share
				}
				require.InDelta(t, 1, sum, 1e-12, "shares of %s to %s", r.From, r.To)
			}
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// The second window counts: e3's estimate moves from 50 to 60 ms of CPU a
// request by the weight of its volatility, e1 keeps its first estimate.
func TestAllocateStepsOverWindows(t *testing.T) {
	a, err := Allocate("testdata/allocate/motivation.yaml", "heart", map[string]string{"alpha": "fixed"}, nil)
	require.NoError(t, err)
	require.Nil(t, a.Seconds, "no clock, no times")
	groups := a.Stages.ATPM[1].Groups
	require.Nil(t, groups[0].Load)
	require.InDelta(t, 0.020, groups[0].EWMA, 1e-12)
	require.InDelta(t, 0.060, *groups[2].Load, 1e-12)
	require.InDelta(t, 0.055, groups[2].EWMA, 1e-12)
}

// All faults of a file come back in one go, with line, field, what was found
// and what is expected; those of the policy with them.
func TestAllocateBadInput(t *testing.T) {
	_, err := Allocate("testdata/allocate/invalid.yaml", "heart", map[string]string{"alpha": "best", "beta": "1"}, nil)
	require.ErrorIs(t, err, ErrInput)
	golden(t, "testdata/allocate/invalid.txt", []byte(err.Error()+"\n"))

	_, err = Allocate("testdata/allocate/motivation.yaml", "fastest", nil, nil)
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, `policy "fastest" is unknown, expected one of`)

	_, err = Allocate("testdata/allocate/absent.yaml", "fastest", nil, nil)
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, "absent.yaml")
	require.ErrorContains(t, err, "fastest")
}

func TestRecordingFaults(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"empty":           {" \n", "found an empty file"},
		"a comment":       {"# nothing\n", "expected"},
		"no mapping":      {"- a\n", "found a list"},
		"null":            {"null\n", `found "null", expected fields`},
		"no YAML":         {"nodes: [", "in.yaml"},
		"two documents":   {"nodes: [n1]\n---\nnodes: [n1]\n", "second document"},
		"an alias":        {"nodes: &n [n1]\ncalls: *n\n", "alias"},
		"self call":       {"nodes: [n1]\nrttMs: [[0]]\nreplicas: [{name: a1, component: a, node: n1}]\ncalls: [{from: a, to: a}]\n", "cycle a -> a"},
		"call twice":      {"calls: [{from: a, to: b}, {from: a, to: b}]\n", "calls[1]: found a to b again"},
		"RTT of an hour":  {"nodes: [n1]\nrttMs: [[3600001]]\n", "in.yaml:2: rttMs[0][0]: found 3.600001e+06, expected ms from 0 to 3600000"},
		"no measurement":  {"replicas: [{name: a1, component: a, node: n1}]\nwindows: [{a1: {requests: 3}}]\n", "in.yaml:2: windows[0].a1.cpuSeconds: found none"},
		"negative limits": {"replicas: [{name: a1, component: a, node: n1, cpuLimit: -1}]\n", "replicas[0].cpuLimit: found -1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parseRecording("in.yaml", []byte(c.text))
			require.ErrorIs(t, err, ErrInput)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A recording without windows still gives a table, and says so.
func TestAllocateWithoutWindows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.yaml")
	text := "nodes: [n1]\nrttMs: [[null]]\ncalls: [{from: a, to: b}]\n" +
		"replicas: [{name: a1, component: a, node: n1}, {name: b1, component: b, node: n1}]\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	a, err := Allocate(path, "heart", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []AllocatedRoute{{"a@n1", "b", "weighted", []AllocatedShare{{"b@n1", 1, 10_000}}}}, a.Routes)
	require.Equal(t, []string{
		"the recording has no windows: nothing was observed",
		"1 of 1 round-trip times are not measured: the largest known one stands in",
	}, a.Warnings)
}

func FuzzRecording(f *testing.F) {
	for _, name := range []string{"motivation.yaml", "invalid.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata/allocate", name))
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := parseRecording("in.yaml", text)
		if err != nil {
			require.ErrorIs(t, err, ErrInput)
			return
		}
		for _, o := range rec.Observations() {
			require.NoError(t, o.Topology.Validate())
		}
	})
}
