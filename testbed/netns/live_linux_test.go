package netns

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

func TestParse(t *testing.T) {
	got, err := parse(strings.NewReader(`# TYPE heartbed_cpu_seconds_total counter
heartbed_cpu_seconds_total{component="b",node="n1",replica="b1"} 1.5
# TYPE heartbed_requests_total counter
heartbed_requests_total{caller_replica="a1",code="OK",component="b",node="n1",replica="b1"} 10
heartbed_requests_total{caller_replica="a1",code="Unavailable",component="b",node="n1",replica="b1"} 2
heartbed_requests_total{caller_replica="a2",code="OK",component="b",node="n1",replica="b1"} 5
`))
	require.NoError(t, err)
	require.Equal(t, reading{
		cpuSeconds: 1.5, answered: map[string]float64{"a1": 10, "a2": 5}, requests: map[string]float64{"a1": 12, "a2": 5},
	}, got)
	for name, text := range map[string]string{
		"no CPU":      "heartbed_requests_total{code=\"OK\"} 1\n",
		"empty":       "",
		"no metrics":  "<html>\n",
		"another CPU": "process_cpu_seconds_total 3\n",
	} {
		_, err := parse(strings.NewReader(text))
		require.Error(t, err, name)
	}
}

func TestJudgePairsNamesWhatIsOff(t *testing.T) {
	s := &session{}
	err := s.judgePairs([]pair{
		{from: "n1", to: "n2", spec: 10 * time.Millisecond, measured: 10400 * time.Microsecond},
		{from: "n1", to: "n3", spec: 50 * time.Millisecond, measured: 100 * time.Millisecond},
		{from: "n2", to: "n3", spec: 50 * time.Millisecond, measured: time.Millisecond},
		{from: "n1", to: "n4", spec: 10 * time.Millisecond, measured: 23 * time.Millisecond, jitter: 4 * time.Millisecond},
	})
	require.ErrorContains(t, err, "round trip n1 to n3: measured 100.00 ms, expected 50.00 ms")
	require.ErrorContains(t, err, "round trip n2 to n3: measured 1.00 ms")
	require.NotContains(t, err.Error(), "n1 to n2")
	require.NotContains(t, err.Error(), "n1 to n4")
	require.Len(t, s.setup, 4)
}

// liveBackend is a backend with journals of its own.
func liveBackend(t *testing.T) Backend {
	t.Helper()
	b := Backend{Options{Journals: t.TempDir()}}
	testbedtest.Require(t, "netns", b.Check(t.Context()))
	return b
}

func begin(t *testing.T, b Backend, p testbed.Plan, table heart.RoutingTable) *session {
	t.Helper()
	started, err := b.Start(t.Context(), p)
	require.NoError(t, err)
	s := started.(*session)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "closing again does nothing")
		requireNothingLeft(t, s.run)
	})
	require.NoError(t, s.Route(t.Context(), table))
	return s
}

func TestBurnTogether(t *testing.T) {
	nodes := func(cores ...float64) (nodes []nodeLayout) {
		for _, c := range cores {
			nodes = append(nodes, nodeLayout{Node: testbed.Node{Cores: c}})
		}
		return nodes
	}
	for _, c := range []struct {
		nodes []nodeLayout
		want  [][]int
	}{
		{nodes(0.25, 0.5, 0.5, 0.5), [][]int{{0, 1, 2, 3}}},
		{nodes(1, 1, 1), [][]int{{0, 1}, {2}}},
		{nodes(1.5, 0.75, 1.25), [][]int{{0}, {1, 2}}},
		{nodes(2, 1, 4), [][]int{{1}}},
		{nodes(4), nil},
	} {
		require.Equal(t, c.want, burnTogether(c.nodes, 2))
	}
}

// A replica that dies in the run leaves no result, and the error says who and
// how. What it leaves on the host is undone.
func TestCrashInTheRunIsNoResult(t *testing.T) {
	s := begin(t, liveBackend(t), testbedtest.Plan(), testbedtest.Table(1, 1))
	_, err := s.Run(t.Context(), func(context.Context) error {
		return s.processes[3].cmd.Process.Kill()
	})
	require.ErrorContains(t, err, "process b1 ended: signal: killed")
}

// Replicas that run but have no routes yet cannot answer; the load waits for
// answers, not for processes (istio/istio#11130).
func TestLoadWaitsForAnswers(t *testing.T) {
	p := testbedtest.Plan()
	p.Timing = testbed.Timing{Duration: workloads.Duration(time.Second)}
	started, err := liveBackend(t).Start(t.Context(), p)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, started.Close()) })
	routed := make(chan error, 1)
	time.AfterFunc(time.Second, func() { routed <- started.Route(t.Context(), testbedtest.Table(1, 1)) })
	m, err := started.Run(t.Context(), nothing)
	require.NoError(t, err)
	require.NoError(t, <-routed)
	require.Equal(t, m.Offered, m.Answered)
	require.Less(t, time.Duration(m.Latency.Max())*time.Microsecond, time.Second)
}

// Runs have the same addresses and do not meet: each has namespaces of its own.
func TestTwoRunsAtOnce(t *testing.T) {
	b := liveBackend(t)
	one := begin(t, b, testbedtest.Plan(), testbedtest.Table(1, 0))
	two := begin(t, b, testbedtest.Plan(), testbedtest.Table(0, 1))
	require.NoError(t, one.awaitAnswers(t.Context()))
	require.NoError(t, two.awaitAnswers(t.Context()))
	served := func(s *session, replica string) (n float64) {
		for _, requests := range s.scraper.readAll(t.Context()).of[replica].requests {
			n += requests
		}
		return n
	}
	require.GreaterOrEqual(t, served(one, "b1"), float64(goodInARow))
	require.Zero(t, served(one, "b2"))
	require.GreaterOrEqual(t, served(two, "b2"), float64(goodInARow))
	require.Zero(t, served(two, "b1"))
}

// Everything a plan can ask for at once: no gateway, so that connections go to
// replicas at random; sidecars, also within a node; a quota; jitter.
func TestPlanWithEverything(t *testing.T) {
	p := testbedtest.Plan()
	p.Entry = testbed.Entry{ClientRTT: workloads.Duration(2 * time.Millisecond)}
	p.Network = testbed.Network{Sidecar: workloads.Duration(500 * time.Microsecond), Jitter: workloads.Duration(100 * time.Microsecond), Connections: 2}
	p.App.Server.LimitCores = 0.5
	p.Load = workloads.Load{Schedule: "wrk2", Threads: 1, Connections: 8}
	p.RPS = 40
	table := testbedtest.Table(1, 1)
	table.Groups, table.Routes = table.Groups[1:], table.Routes[1:]
	s := begin(t, liveBackend(t), p, table)
	m, err := s.Run(t.Context(), func(context.Context) error { return nil })
	require.NoError(t, err)
	require.Greater(t, m.Answered+m.CutOff, m.Offered*9/10, "wrk2 does not wait for the last answers")
	require.Greater(t, m.LatencyMeanUs, 1000.0*(1.5+2+1+2), "CPU, client and its sidecars, a call's sidecars")
	require.Contains(t, m.Throttled, "b1")
	spec := map[string]float64{}
	for _, c := range m.Setup {
		spec[c.What] = c.Spec
	}
	require.Equal(t, 12.0, spec["round trip n1 to n2"])
	require.Equal(t, 2.0, spec["round trip n1 to n1"])
	require.Equal(t, 3.0, spec["round trip load generator to n2"])
}
