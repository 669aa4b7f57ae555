package scaler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type realChange struct{ Ago, Replicas int }

type realRules struct {
	Stabilization int
	Least         bool
	Policies      []struct{ Pods, Percent, Period int }
}

type limitCase struct {
	Up, Down                *realRules
	ProposedBefore, Out, In []realChange
	Min, Max, Current       int
	Want, Replicas          int
}

func history(in []realChange) (out []change) {
	for _, c := range in {
		out = append(out, change{at: -seconds(c.Ago), replicas: c.Replicas})
	}
	return out
}

func (r realRules) rules() Rules {
	out := Rules{Stabilization: seconds(r.Stabilization), Least: r.Least}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, Policy{Pods: p.Pods, Percent: p.Percent, Period: seconds(p.Period)})
	}
	return out
}

func TestLimitsAreThoseOfKubernetes(t *testing.T) {
	for i, c := range vectors(t).Limits {
		l := limits{min: c.Min, max: c.Max, proposed: history(c.ProposedBefore), out: history(c.Out), in: history(c.In)}
		if c.Up != nil {
			l.behavior = &Behavior{Up: c.Up.rules(), Down: c.Down.rules()}
		}
		require.Equalf(t, c.Replicas, l.apply(0, c.Current, c.Want), "case %d: %+v", i, c)
	}
}

func TestWithoutBehaviorReplicasAtMostDouble(t *testing.T) {
	l := limits{min: 1, max: 50}
	require.Equal(t, 4, l.apply(0, 1, 40))
	require.Equal(t, 8, l.apply(15*time.Second, 4, 40))
	require.Equal(t, 16, l.apply(30*time.Second, 8, 40))
	require.Equal(t, 40, l.apply(330*time.Second, 40, 32), "40 was proposed 300 s ago: it still counts")
	require.Equal(t, 32, l.apply(331*time.Second, 40, 30))
	require.Equal(t, 1, l.apply(700*time.Second, 32, 1))
}

func TestBehaviorSteadiesThenBounds(t *testing.T) {
	l := limits{min: 1, max: 30, behavior: &Behavior{
		Up:   Rules{Policies: []Policy{{Pods: 4, Period: 15 * time.Second}, {Percent: 100, Period: 15 * time.Second}}},
		Down: Rules{Stabilization: time.Minute, Policies: []Policy{{Percent: 50, Period: 30 * time.Second}}},
	}}
	require.Equal(t, 5, l.apply(0, 1, 40), "four pods are more than 100 percent of one")
	require.Equal(t, 10, l.apply(15*time.Second, 5, 40))
	require.Equal(t, 10, l.apply(20*time.Second, 10, 40), "five were added in this period already")
	require.Equal(t, 10, l.apply(60*time.Second, 10, 2), "40 was proposed within the last minute")
	require.Equal(t, 5, l.apply(120*time.Second, 10, 2))
	require.Equal(t, 5, l.apply(135*time.Second, 5, 2), "half of the ten of 30 s ago")
}
