package experiments

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that moves with each reading makes the report exact.
func TestScale(t *testing.T) {
	r, err := Scale(t.Context(), ScaleOptions{Policies: []string{"heart", "lata"}, Replicas: []int{10, 20}, Steps: 5}, tick())
	require.NoError(t, err)
	require.Equal(t, []ScaleRow{
		{"heart", 10, map[string]float64{"predict": 1, "filter": 1, "flow": 1}, 3},
		{"heart", 20, map[string]float64{"predict": 1, "filter": 1, "flow": 1}, 3},
		{"lata", 10, map[string]float64{"flow": 1}, 1},
		{"lata", 20, map[string]float64{"flow": 1}, 1},
	}, r.Rows)
	for _, g := range r.Growth {
		require.InDelta(t, 0, *g.Exponent, 1e-9, "the same time at every size")
	}
	var text strings.Builder
	require.NoError(t, r.WriteText(&text))
	require.Equal(t, `Scheduling time, ms: median of 5 steps; 5 components in a chain on 5 nodes.

policy  replicas  total  stages
heart   10        3.000  filter 1.000, flow 1.000, predict 1.000
heart   20        3.000  filter 1.000, flow 1.000, predict 1.000
lata    10        1.000  flow 1.000
lata    20        1.000  flow 1.000

policy  time grows as replicas to the power
heart   0.00
lata    0.00
`, text.String())
}

func TestScaleGrowth(t *testing.T) {
	r := ScaleReport{Rows: []ScaleRow{{"p", 100, nil, 2}, {"p", 200, nil, 8}, {"p", 400, nil, 32}, {"q", 100, nil, 1}}}
	require.InDelta(t, 2, *r.growth("p").Exponent, 1e-9)
	require.Nil(t, r.growth("q").Exponent, "one size has no growth")
}

func TestScaleBadInput(t *testing.T) {
	_, err := Scale(t.Context(), ScaleOptions{Policies: []string{"fastest"}, Replicas: []int{4, -1}, Nodes: -2}, time.Now)
	require.ErrorIs(t, err, ErrInput)
	for _, want := range []string{`policies: found "fastest"`, "nodes: found -2", "replicas: found 4", "replicas: found -1"} {
		require.ErrorContains(t, err, want)
	}
	_, err = Scale(t.Context(), ScaleOptions{}, time.Now)
	require.ErrorContains(t, err, "policies: found none")
}

func TestScaleEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Scale(ctx, ScaleOptions{Policies: []string{"heart"}}, time.Now)
	require.ErrorIs(t, err, context.Canceled)
}
