package live

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
)

var epoch = time.Unix(1000, 0)

// scrapes makes one of b1's counters a second: CPU seconds and requests of a1;
// a negative CPU means that the scrape failed.
func scrapes(cpu, requests []float64) []Counters {
	var out []Counters
	for i := range cpu {
		c := Counters{At: epoch.Add(time.Duration(i) * time.Second), Of: map[string]Reading{}}
		if cpu[i] >= 0 {
			n := map[string]float64{"a1": requests[i]}
			c.Of["b1"] = Reading{CPUSeconds: cpu[i], Answered: n, Requests: n}
		}
		out = append(out, c)
	}
	return out
}

func TestObserve(t *testing.T) {
	call := heart.Call{From: "a", To: "b"}
	for name, c := range map[string]struct {
		cpu, requests []float64
		want          heart.Sample
		absent        bool
	}{
		"steady":           {cpu: []float64{1, 2, 4}, requests: []float64{10, 20, 40}, want: heart.Sample{CPUSeconds: 3, Requests: 30}},
		"idle is not none": {cpu: []float64{1, 1}, requests: []float64{10, 10}, want: heart.Sample{}},
		"restart":          {cpu: []float64{5, 6, 1}, requests: []float64{50, 60, 4}, want: heart.Sample{CPUSeconds: 2, Requests: 14}},
		"gap inside":       {cpu: []float64{1, -1, 4}, requests: []float64{10, 0, 40}, want: heart.Sample{CPUSeconds: 3, Requests: 30}},
		"last missing":     {cpu: []float64{1, 2, -1}, requests: []float64{10, 20, 0}, want: heart.Sample{CPUSeconds: 2, Requests: 20}},
		"read once":        {cpu: []float64{-1, 2, -1}, requests: []float64{0, 20, 0}, absent: true},
		"never read":       {cpu: []float64{-1, -1}, requests: []float64{0, 0}, absent: true},
		"one scrape":       {cpu: []float64{1}, requests: []float64{10}, absent: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := observe(testbedtest.Plan().Topology(), scrapes(c.cpu, c.requests))
			got, here := o.Replicas["b1"]
			_, called := o.Calls[call]
			require.Equal(t, !c.absent, here)
			require.Equal(t, !c.absent, called)
			require.NotContains(t, o.Replicas, "b2", "not observed is absent, not zero")
			if c.absent {
				return
			}
			require.InDelta(t, c.want.CPUSeconds, got.CPUSeconds, 1e-9)
			require.InDelta(t, c.want.Requests, got.Requests, 1e-9)
			require.InDelta(t, c.want.Requests, o.Calls[call], 1e-9)
			require.Equal(t, time.Duration(len(c.cpu)-1)*time.Second, o.Window)
		})
	}
}

func TestSeenCountsFromTheFirstRequest(t *testing.T) {
	topology := testbedtest.Plan().Topology()
	before := Counters{At: epoch, Of: map[string]Reading{"b1": {}, "b2": {}}}
	after := Counters{At: epoch.Add(time.Second), Of: map[string]Reading{
		"b1": {CPUSeconds: 1, Requests: map[string]float64{"a1": 3, "a2": 1, "": 7}}, "b2": {},
	}}
	got := map[string]int64{}
	for _, s := range seen(topology, before, after) {
		got[s.From.Name+">"+s.To.Name] = s.Requests
	}
	require.Equal(t, map[string]int64{"a1>b1": 3, "a2>b1": 1}, got)
}

// The chosen scrapes end with the newest that lag lets through and reach back
// at most a window.
func TestChoose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "scrapes")
		window := time.Duration(rapid.IntRange(0, 10).Draw(t, "window")) * time.Second
		lag := time.Duration(rapid.IntRange(0, 5).Draw(t, "lag")) * time.Second
		kept := scrapes(make([]float64, n), make([]float64, n))
		now := epoch.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "now")) * time.Second)
		got := choose(kept, now, window, lag)
		if len(got) == 0 {
			return
		}
		require.GreaterOrEqual(t, len(got), 2)
		last := got[len(got)-1].At
		require.False(t, last.After(now.Add(-lag)))
		require.LessOrEqual(t, last.Sub(got[0].At), window)
		newest := math.Min(float64(n-1), now.Add(-lag).Sub(epoch).Seconds())
		require.Equal(t, newest, last.Sub(epoch).Seconds())
	})
}

func TestWindowsHaveDefaults(t *testing.T) {
	scrape, window, lag := windows(testbed.Control{Period: 30e9, Lag: 1e9})
	require.Equal(t, []time.Duration{5 * time.Second, 30 * time.Second, time.Second}, []time.Duration{scrape, window, lag})
}
