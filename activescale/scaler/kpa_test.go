package scaler

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Knative's own autoscaler, asked every two seconds while load and ready pods
// change; see testdata/README.md.
func TestDecisionsAreThoseOfKnative(t *testing.T) {
	raw, err := os.ReadFile("testdata/kpa.json")
	require.NoError(t, err)
	var runs [][]struct {
		At, Ready, Replicas int
		Load                float64
	}
	require.NoError(t, json.Unmarshal(raw, &runs))
	require.NotEmpty(t, runs)
	for i, run := range runs {
		k := newKPA(config(KindKPA))
		for _, tick := range run {
			now := seconds(tick.At)
			k.stable.record(now, tick.Load)
			k.panic.record(now, tick.Load)
			if tick.Replicas < 0 {
				continue
			}
			replicas, ok := k.decide(now, tick.Ready, k.stable.mean(now), k.panic.mean(now))
			require.True(t, ok)
			require.Equalf(t, tick.Replicas, replicas, "run %d at %d s", i, tick.At)
		}
	}
}

func TestNoDataIsNoDecision(t *testing.T) {
	k := newKPA(config(KindKPA))
	_, ok := k.decide(time.Minute, 3, k.stable.mean(time.Minute), k.panic.mean(time.Minute))
	require.False(t, ok)
}

func TestBucketsMean(t *testing.T) {
	b := newBuckets(6 * time.Second)
	require.Zero(t, b.mean(0))
	b.record(seconds(10), 6)
	require.Equal(t, 6.0, b.mean(seconds(10)), "a partial window at the start")
	b.record(seconds(12), 3)
	require.Equal(t, 3.0, b.mean(seconds(12)), "the second without a value counts as zero")
	require.Equal(t, 3.0, b.mean(seconds(14)), "up to the newest value")
	require.Zero(t, b.mean(seconds(18)))
	b.record(seconds(40), 8)
	require.Equal(t, 8.0, b.mean(seconds(40)), "after a silence the window starts anew")
}

func TestRequestsAtTheActivatorCount(t *testing.T) {
	k := newKPA(config(KindKPA))
	v, _ := pods(0)
	for k.Next() < 10*time.Second {
		v.Now = k.Next()
		v.Queued, v.QueuedSeconds = 50, 50*v.Now.Seconds()
		if replicas, ok := k.Act(v); ok && v.Now > 8*time.Second {
			require.Equal(t, 5, replicas)
		}
	}
}
