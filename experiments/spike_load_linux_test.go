package experiments_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
	"heartbed/testbed/live"
	"heartbed/workloads"
	"heartbed/workloads/loadgen"
)

// offering is load on one rival. Each offer begins where the last one ends.
func (l *spikeLab) offering(name string, load workloads.Load, rps float64, lasts, drop time.Duration) loadgen.Config {
	return loadgen.Config{
		Target: "http://" + l.gateways[name] + "/", Load: load, RPS: rps, Duration: lasts, Drop: drop,
		Seed: l.plan.Seed, Run: workloads.MeasuredRun(false),
	}
}

// slice is how long a part of a steady load lasts.
const slice = 5 * time.Second

// steady is a load that does not change, until it is stopped.
type steady struct {
	stop    context.CancelFunc
	over    chan struct{} // closed at the end of the last slice
	answers sync.WaitGroup

	mu                sync.Mutex
	offered, answered int64
	faults            []string
}

// steadily offers a load in slices. Answers to one are awaited during the next.
func (l *spikeLab) steadily(ctx context.Context, name string, rps float64) *steady {
	stopped, stop := context.WithCancel(ctx)
	s := &steady{stop: stop, over: make(chan struct{})}
	load := l.plan.Load
	load.Profile = nil
	go func() {
		defer close(s.over)
		for begin := time.Now(); stopped.Err() == nil; {
			s.answers.Go(func() { s.add(l.load.Load(ctx, l.offering(name, load, rps, slice, 0))) })
			begin = begin.Add(slice)
			if live.Pause(ctx, time.Until(begin)) != nil {
				return
			}
		}
	}()
	return s
}

func (s *steady) add(r loadgen.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered += r.Offered
	s.answered += r.Answered
	s.faults = append(s.faults, r.Faults...)
	if err != nil {
		s.faults = append(s.faults, err.Error())
	}
}

// end waits for the end of the slice that is on, and not for its answers.
func (s *steady) end() {
	s.stop()
	<-s.over
}

// total is what came of it, once all answers are there.
func (s *steady) total() (offered, answered int64, faults string) {
	s.answers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offered, s.answered, strings.Join(s.faults, "; ")
}

// spiked is what became of one rival in the spike. It is no line of a
// results.jsonl: those figures and these are not of the same service.
type spiked struct {
	Backend string `json:"backend"`
	Pattern string `json:"pattern"`
	Scaler  string `json:"scaler"`
	Push    string `json:"push,omitempty"`
	*experiments.Scaling
	Offered     int64    `json:"offered"`
	Failed      int64    `json:"failed"`
	P50Ms       float64  `json:"p50Ms"`
	P99Ms       float64  `json:"p99Ms"`
	LatenessP99 float64  `json:"latenessP99Ms"` // of the generator
	Faults      []string `json:"faults,omitempty"`
}

// spike offers the load of the plan to both rivals at the same time. When it is
// over the load on activescale's goes on as it was in the end.
func (l *spikeLab) spike(ctx context.Context, t *testing.T) map[string]spiked {
	timing := l.plan.Timing
	began := time.Now()
	answers := map[string]chan loadgen.Result{}
	for _, name := range rivals {
		answers[name] = make(chan loadgen.Result, 1)
		go func() {
			r, err := l.load.Load(ctx, l.offering(name, l.plan.Load, l.plan.RPS, timing.Duration.Std(), timing.Drop.Std()))
			if err != nil {
				r.Faults = append(r.Faults, err.Error())
			}
			answers[name] <- r
		}()
	}
	require.NoError(t, live.Pause(ctx, time.Until(began.Add(timing.Duration.Std()))))
	l.steady = l.steadily(ctx, byActive, spikeRPS)
	results := map[string]spiked{}
	for _, name := range rivals {
		r := <-answers[name]
		require.NotNil(t, r.Latency, "%s: %v", name, r.Faults)
		s := spiked{
			Backend: "kind", Pattern: fmt.Sprintf("TC1: %g to %g requests a second, %g a replica", l.plan.RPS/10, l.plan.RPS, perReplica), Scaler: name,
			Scaling: experiments.ScalingOf(l.plan, l.watch.points(name, began)),
			Offered: r.Offered, Failed: r.Offered - r.Answered, Faults: r.Faults,
			P50Ms: float64(r.Latency.ValueAtQuantile(50)) / 1000, P99Ms: float64(r.Latency.ValueAtQuantile(99)) / 1000,
		}
		if name == byActive {
			s.Push = "stand-in for Envoy"
		}
		if r.Lateness != nil {
			s.LatenessP99 = float64(r.Lateness.ValueAtQuantile(99)) / 1000
		}
		results[name] = s
		t.Logf("%s, seconds since the base load began, spike at %v:\n%s", name, spikeBefore, strings.Join(l.watch.words(name, began), "\n"))
	}
	return results
}

// table shows the results to people, and as JSON to programs.
func table(t *testing.T, results map[string]spiked) {
	t.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kind\tcoverage, %\tstart, s\tto the need, s\tunder\tover\tfailed\tof\tP50, ms\tP99, ms\t")
	for _, name := range rivals {
		r := results[name]
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%.0f\t%.0f\t%d\t%d\t%.0f\t%.0f\t\n", name, r.CoveragePct, orNever(r.StartSeconds), orNever(r.MaxSeconds),
			r.UnderReplicaSeconds, r.OverReplicaSeconds, r.Failed, r.Offered, r.P50Ms, r.P99Ms)
	}
	require.NoError(t, w.Flush())
	t.Logf("real HPA, real metrics-server; requests in flight are pushed by a stand-in for Envoy\n%s", text.String())
	for _, name := range rivals {
		raw, err := json.Marshal(results[name])
		require.NoError(t, err)
		t.Logf("%s", raw)
	}
}

func orNever(seconds *float64) string {
	if seconds == nil {
		return "never"
	}
	return fmt.Sprintf("%.1f", *seconds)
}
