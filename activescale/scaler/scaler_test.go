package scaler

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func config(kind string) Config {
	c := Config{Kind: kind, Min: 1, Max: 50, Seed: 1, Target: 10, RequestCores: 0.35, Every: 5 * time.Second}
	switch kind {
	case KindCPU:
		c.Target, c.Every = 60, 15*time.Second
	case KindKEDA:
		c.Every = 15 * time.Second
	}
	return c
}

// step is a load that multiplies at a moment: the view of pods that do nothing
// but count it. Replicas never change.
type step struct {
	at            time.Duration
	pods          int
	before, after float64 // requests in flight of all pods
	cores         float64 // a request in flight
}

func (s step) view(now time.Duration) View {
	v := View{Now: now, Replicas: s.pods}
	seconds := s.before * (now.Seconds() + 3600)
	active := s.before
	if now >= s.at {
		active = s.after
		seconds += (s.after - s.before) * (now - s.at).Seconds()
	}
	n := float64(s.pods)
	for id := range s.pods {
		v.Pods = append(v.Pods, Pod{
			ID: id, Created: -time.Hour, Started: -time.Hour, Changed: -time.Hour, Ready: true, Running: true,
			Active: int(active / n), ActiveSeconds: seconds / n, CPUSeconds: seconds / n * s.cores,
		})
	}
	return v
}

// delay runs a scaler over the step until it asks for more replicas.
func (s step) delay(t *testing.T, c Config) time.Duration {
	sc, err := New(c)
	require.NoError(t, err)
	for now := time.Duration(0); now < s.at+5*time.Minute; now = sc.Next() {
		replicas, decided := sc.Act(s.view(now))
		if decided && replicas > s.pods {
			require.GreaterOrEqual(t, now, s.at, "before the load rose")
			return now - s.at
		}
	}
	t.Fatalf("%s: nothing was decided", c.Kind)
	return 0
}

// Mean and largest delay until the first decision that sees the new load,
// derived from the periods: half of each on average, all of them at worst.
func TestDelayToTheFirstDecision(t *testing.T) {
	s := step{at: 300 * time.Second, pods: 2, before: 20, after: 200, cores: 0.02}
	cases := []struct {
		name            string
		change          func(*Config)
		kind            string
		mean, tolerance float64 // s
		most            float64
	}{
		{"push 5 s", nil, KindActivescale, 10, 1, 20},
		{"push 1 s", func(c *Config) { c.Every = time.Second }, KindActivescale, 8, 1, 16},
		{"Prometheus 15 s", nil, KindKEDA, 15, 3, 30}, // two pods: the first to be scraped suffices
		{"Prometheus 60 s", func(c *Config) { c.Every = time.Minute }, KindKEDA, 37.5, 15, 75},
		{"Prometheus 30 s, cached 30 s", func(c *Config) { c.Every, c.Poll = 30*time.Second, 30*time.Second }, KindKEDA, 37.5, 8, 75},
		{"CPU 15 s", nil, KindCPU, 20, 6, 40},
		{"KPA", nil, KindKPA, 3, 1.5, 5},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var delays []float64
			for seed := range uint64(400) {
				conf := config(c.kind)
				conf.Seed = seed
				if c.change != nil {
					c.change(&conf)
				}
				delays = append(delays, s.delay(t, conf).Seconds())
			}
			mean := 0.0
			for _, d := range delays {
				mean += d / float64(len(delays))
			}
			t.Logf("mean %.1f s, %.1f to %.1f s", mean, slices.Min(delays), slices.Max(delays))
			require.InDelta(t, c.mean, mean, c.tolerance)
			require.LessOrEqual(t, slices.Max(delays), c.most)
		})
	}
}

// A seed fixes every phase; HPAs of one seed decide at the same moments.
func TestPhasesFollowTheSeed(t *testing.T) {
	for _, kind := range Kinds() {
		a, err := New(config(kind))
		require.NoError(t, err)
		b, err := New(config(kind))
		require.NoError(t, err)
		s := step{at: 100 * time.Second, pods: 3, before: 30, after: 90, cores: 0.02}
		for range 200 {
			require.Equal(t, a.Next(), b.Next(), kind)
			n, ok := a.Act(s.view(a.Next()))
			m, also := b.Act(s.view(b.Next()))
			require.Equal(t, n, m)
			require.Equal(t, ok, also)
		}
	}
	cpu, push := newHPA(config(KindCPU)), newHPA(config(KindActivescale))
	require.Equal(t, cpu.next, push.next)
	other := config(KindCPU)
	other.Seed = 2
	require.NotEqual(t, cpu.next, newHPA(other).next)
}

func TestSilentPodsAreNotZero(t *testing.T) {
	p := newPush(config(KindActivescale), ratio{tolerance: DefaultTolerance})
	v, _ := pods(0, 0)
	v.Pods[0].Active, v.Pods[1].Active = 30, 30
	for p.next() < 10*time.Second {
		v.Now = p.next()
		p.collect(v)
	}
	replicas, ok := p.propose(v)
	require.True(t, ok)
	require.Equal(t, 6, replicas)
	v.Now += freshFor * 5 * time.Second // nobody has flushed since: an error, not a scale-in
	_, ok = p.propose(v)
	require.False(t, ok)
}

func TestPrometheusTakesNothingForZero(t *testing.T) {
	p := newPrometheus(config(KindKEDA), ratio{tolerance: DefaultTolerance})
	replicas, ok := p.propose(View{Replicas: 20})
	require.True(t, ok)
	require.Zero(t, replicas, "ignoreNullValues: the HPA's minimum is all that is left")
}

// metrics-server knows a restarted container only after two readings, or one
// that is older than ten seconds and younger than the resolution.
func TestMetricsServerForgetsRestartedContainers(t *testing.T) {
	m := newMetricsServer(config(KindCPU), ratio{tolerance: DefaultTolerance})
	v, _ := pods(0)
	read := func(at time.Duration, started time.Duration, cpu float64) map[int]sample {
		v.Now, v.Pods[0].Started = at, started
		m.read[0] = counter{at: at, started: started, cpu: cpu}
		m.store(v)
		return m.usage()
	}
	require.Empty(t, read(0, -time.Hour, 0))
	got := read(15*time.Second, -time.Hour, 3)
	require.Equal(t, map[int]sample{0: {milli: 200, at: 15 * time.Second, window: 15 * time.Second}}, got)
	m.store(v) // no new reading: the two before still count
	require.Equal(t, got, m.usage())
	require.Empty(t, read(30*time.Second, 25*time.Second, 1), "started five seconds ago")
	require.Len(t, read(37*time.Second, 25*time.Second, 3), 1, "older than ten seconds: since its start")
	require.EqualValues(t, 250, m.usage()[0].milli)
	v.Pods[0].Running = false
	m.store(v)
	require.Empty(t, m.usage(), "a container that is down has no usage")
}

func TestValidateNamesEveryFault(t *testing.T) {
	err := Config{Kind: "cron", Tolerance: math.NaN(), Poll: -1, Behavior: &Behavior{Up: Rules{Policies: []Policy{{}}}}}.Validate()
	for _, part := range []string{"kind:", "min:", "target:", "every:", "poll", "behavior.up:", "behavior.down:"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(Config{Kind: KindCPU, Min: 1, Max: 2, Target: 60, Every: time.Second})
	require.ErrorContains(t, err, "requestCores:")
}
