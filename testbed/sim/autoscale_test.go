package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/heart/policy"
	"heartbed/testbed"
	"heartbed/workloads"
)

// spike is a service of up to ten replicas behind a gateway: 20 ms of CPU and
// 100 ms of waiting a request, ten requests a second a replica with one request
// in flight each. After half a minute the rate rises from 10 to 60.
func spike(kind string) testbed.Plan {
	p := testbed.Plan{
		App: workloads.Application{
			Name: "spike", Entry: "a", Server: workloads.Server{Threads: 1},
			Components: []workloads.Component{
				{Name: "a", Replicas: 10, Steps: []workloads.Step{{CPUMs: 20}, {Call: []string{"b"}}}},
				{Name: "b", Replicas: 1, Steps: []workloads.Step{{CPUMs: 0.01}}},
			},
		},
		Nodes:    []testbed.Node{{Name: "n1", Cores: 16, Slowness: 1}, {Name: "far", Cores: 4, Slowness: 1}},
		RTT:      [][]time.Duration{{0, 100 * time.Millisecond}, {100 * time.Millisecond, 0}},
		Replicas: []heart.Replica{{Name: "b1", Component: "b", Node: "far"}},
		Entry:    testbed.Entry{Gateway: "n1"},
		Load:     workloads.Load{Schedule: "open", Arrivals: "even", Profile: []workloads.RatePoint{{Factor: 1. / 6}, {At: ms(30_000), Factor: 1}}},
		RPS:      60, Seed: 1,
		Timing: testbed.Timing{Duration: ms(150_000)},
		Autoscale: &testbed.Autoscale{
			Component: "a", Min: 1, StartMin: ms(3000), StartMax: ms(3000), RPSPerReplica: 10, RequestCores: 0.35,
			TargetActive: 1.3, TargetCPU: 60, Scaler: testbed.Scaler{Kind: kind, Every: ms(5000)},
		},
	}
	for i := range 10 {
		p.Replicas = append(p.Replicas, heart.Replica{Name: fmt.Sprintf("a%d", i+1), Component: "a", Node: "n1"})
	}
	return p
}

// scaled runs a plan under least request and returns the world too.
func scaled(t *testing.T, p testbed.Plan) (*world, testbed.Measurement) {
	t.Helper()
	w := build(t, p)
	s := &session{world: w}
	allocate, err := policy.New("least-request", nil)
	require.NoError(t, err)
	c := heart.Controller{Observer: s, Policy: allocate, Router: s}
	step := func(ctx context.Context) error { _, err := c.Step(ctx); return err }
	require.NoError(t, step(t.Context()))
	m, err := s.Run(t.Context(), step)
	require.NoError(t, err)
	require.Empty(t, m.StepErrors)
	require.Equal(t, m.Offered, m.Answered+m.Failed+m.TimedOut+m.CutOff, "every request has one fate")
	require.InEpsilon(t, m.OutstandingMean, m.OccupiedMean, 0.001, "Little's law")
	for _, i := range w.scaled.places {
		require.Zero(t, w.scaled.pods[i].active, "in flight after the last answer")
	}
	return w, m
}

func TestReplicasFollowTheLoad(t *testing.T) {
	for _, kind := range []string{"cpu", "activescale", "keda", "kpa"} {
		t.Run(kind, func(t *testing.T) {
			_, m := scaled(t, spike(kind))
			first, last := m.Scaling[0], m.Scaling[len(m.Scaling)-1]
			require.Equal(t, testbed.ScalePoint{Wanted: 1, Pods: 1, Ready: 1}, first)
			require.InDelta(t, 6, last.Ready, 2)
			require.Zero(t, m.Failed)
			require.NotEmpty(t, m.Tables)
			asked := map[int]time.Duration{} // when as many pods were created
			for _, p := range m.Scaling {
				require.LessOrEqual(t, p.Ready, p.Pods)
				require.Equal(t, p.Wanted, p.Pods)
				if _, known := asked[p.Pods]; !known {
					asked[p.Pods] = p.At
				}
				if at, known := asked[p.Ready]; known && p.Ready > 1 {
					require.GreaterOrEqual(t, p.At-at, 3*time.Second, "ready before it has started")
				}
			}
		})
	}
}

func TestNewReplicasGetRequestsAsSoonAsTheyAreReady(t *testing.T) {
	firstRequest := func(wait bool) time.Duration {
		p := spike("activescale")
		p.Control.Period, p.Control.Window, p.Control.Scrape = ms(30_000), ms(30_000), ms(5000)
		p.Autoscale.WaitForStep = wait
		_, m := scaled(t, p)
		var ready, routed time.Duration
		for _, s := range m.Scaling {
			if s.Ready > 1 {
				ready = s.At
				break
			}
		}
		for _, table := range m.Tables {
			if len(table.Table.Groups) > 0 && table.At > ready {
				routed = table.At
				break
			}
		}
		return routed - ready
	}
	require.InDelta(t, endpointDelay.Seconds(), firstRequest(false).Seconds(), 0.01)
	require.Greater(t, firstRequest(true), 2*time.Second)
}

// A replica that cannot bear its requests is killed with all of them and
// started again after no time, 10 s, 20 s and so on; while none is ready the
// gateway answers with an error.
func TestOverloadKillsReplicas(t *testing.T) {
	p := spike("cpu")
	p.Autoscale.Scaler.Every = ms(600_000) // metrics-server sees nothing in time
	p.Autoscale.DiesAt = 40                // 60 a second on one replica that can do 50
	w, m := scaled(t, p)
	restarts := w.scaled.pods[w.scaled.places[0]].restarts
	require.GreaterOrEqual(t, restarts, 3)
	require.Greater(t, m.Failed, int64(40*restarts))
	var down []time.Duration
	for i, s := range m.Scaling[:len(m.Scaling)-1] {
		if s.Ready == 0 {
			down = append(down, m.Scaling[i+1].At-s.At)
		}
	}
	require.Equal(t, []time.Duration{3 * time.Second, 13 * time.Second, 23 * time.Second}, down[:3])
}

func TestScaleInLosesNoRequest(t *testing.T) {
	p := spike("activescale")
	p.Autoscale.ScaleUp = &testbed.ScaleRules{Policies: []testbed.ScalePolicy{{Percent: 900, Period: ms(15_000)}}}
	p.Autoscale.ScaleDown = &testbed.ScaleRules{Policies: []testbed.ScalePolicy{{Percent: 100, Period: ms(15_000)}}}
	p.Load.Profile = append(p.Load.Profile, workloads.RatePoint{At: ms(90_000), Factor: 1. / 6})
	_, m := scaled(t, p)
	require.Less(t, m.Scaling[len(m.Scaling)-1].Pods, 4)
	require.Zero(t, m.Failed)
	require.Equal(t, m.Offered, m.Answered)
}

// The activator never lets more requests to a pod than it may have, in order
// of arrival, and loses none.
func TestActivatorHoldsRequestsBack(t *testing.T) {
	p := spike("kpa")
	p.Autoscale.Scaler.Limit = 2
	w := build(t, p)
	s := &session{world: w}
	allocate, err := policy.New("least-request", nil)
	require.NoError(t, err)
	c := heart.Controller{Observer: s, Policy: allocate, Router: s}
	most, held := 0, 0
	w.plan.Control.Period = ms(100)
	_, err = c.Step(t.Context())
	require.NoError(t, err)
	m, err := s.Run(t.Context(), func(context.Context) error {
		for _, i := range w.scaled.places {
			most = max(most, w.scaled.pods[i].active)
		}
		held = max(held, len(w.scaled.held))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, most)
	require.Greater(t, held, 10, "the spike finds one pod")
	require.Zero(t, m.Failed)
	require.Equal(t, m.Offered, m.Answered)
}

func TestScalingRepeatsExactly(t *testing.T) {
	run := func(seed uint64) string {
		p := spike("activescale")
		p.Seed, p.Autoscale.DiesAt, p.Autoscale.StartMax = seed, 60, ms(9000)
		_, m := scaled(t, p)
		text, err := json.Marshal([]any{m.Scaling, m.Answered, m.Failed, m.LatencyMeanUs, m.Events})
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}

// Of two replicas of which one is new, it gets nothing at first and half at the
// end, and a cold one does its work slower.
func TestNewReplicasRampAndWarmUp(t *testing.T) {
	p := spike("cpu")
	p.Autoscale.Initial, p.Autoscale.Ramp = 2, ms(20_000)
	p.Autoscale.ColdFactor, p.Autoscale.ColdFor = 3, ms(10_000)
	w := build(t, p)
	s := &session{world: w}
	allocate, err := policy.New("kubeproxy", nil)
	require.NoError(t, err)
	c := heart.Controller{Observer: s, Policy: allocate, Router: s}
	_, err = c.Step(t.Context())
	require.NoError(t, err)
	fresh := w.scaled.places[1]
	part := func(age time.Duration) float64 {
		w.scaled.pods[fresh].changed = w.now - int64(age)
		const draws = 20_000
		hits := 0
		for range draws {
			if w.router.pick(0, w.scaled.callee).replica == fresh {
				hits++
			}
		}
		return float64(hits) / draws
	}
	require.InDelta(t, 1./16, part(0), 0.01, "only when it is drawn four times in a row")
	require.InDelta(t, 0.5, part(20*time.Second), 0.02)
	require.InDelta(t, 0.36, part(10*time.Second), 0.04)
	require.Equal(t, 2.0, w.scaled.cold(w.now+int64(5*time.Second)-int64(10*time.Second), fresh))
	require.Equal(t, 1.0, w.scaled.cold(w.now, w.scaled.places[0]))
}

func TestPlanWithoutRoomIsRefused(t *testing.T) {
	for _, spoil := range []func(*testbed.Plan){
		func(p *testbed.Plan) { p.Autoscale.Component = "c" },
		func(p *testbed.Plan) { p.Autoscale.Min = 11 },
		func(p *testbed.Plan) { p.Entry.Gateway = "" },
		func(p *testbed.Plan) { p.Autoscale.Scaler.Kind = "guess" },
	} {
		p := spike("cpu")
		spoil(&p)
		_, err := Backend{}.Start(t.Context(), p)
		require.ErrorContains(t, err, "autoscale")
	}
}
