package netns

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

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
	require.NoError(t, one.AwaitAnswers(t.Context()))
	require.NoError(t, two.AwaitAnswers(t.Context()))
	served := func(s *session, replica string) (n float64) {
		for _, requests := range s.Scraper.ReadAll(t.Context()).Of[replica].Requests {
			n += requests
		}
		return n
	}
	require.GreaterOrEqual(t, served(one, "b1"), float64(5))
	require.Zero(t, served(one, "b2"))
	require.GreaterOrEqual(t, served(two, "b2"), float64(5))
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
