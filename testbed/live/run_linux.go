package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/workloads"
	"heartbed/workloads/loadgen"
)

const (
	goodInARow  = 5 // requests through the whole application before the load starts
	firstAnswer = 60 * time.Second
)

// measure plays warm-up, gap and measured run.
func (s *Session) measure(ctx context.Context, step func(context.Context) error) (m testbed.Measurement, err error) {
	if err := s.AwaitAnswers(ctx); err != nil {
		return m, err
	}
	s.mu.Lock()
	s.Began = time.Now()
	s.mu.Unlock()

	var beside sync.WaitGroup // what goes on beside the load
	besides, stop := context.WithCancel(ctx)
	defer beside.Wait()
	defer stop()
	beside.Go(func() { s.Scraper.loop(besides) })
	var stepErrors []string
	beside.Go(func() { stepErrors = s.control(besides, step) })
	var antagonistsErr error
	beside.Go(func() { antagonistsErr = s.antagonise(besides) })

	t := s.Layout.Plan.Timing
	if warmup := t.Warmup.Std(); warmup > 0 {
		if _, err := s.offer(ctx, s.load(workloads.WarmupRun, warmup, 0)); err != nil {
			return m, fmt.Errorf("warm-up: %w", err)
		}
		if err := Pause(ctx, t.Gap.Std()); err != nil {
			return m, err
		}
	}
	before := s.Scraper.ReadAll(ctx)
	groupsBefore, err := s.groupStats()
	if err != nil {
		return m, err
	}
	var windows []testbed.CPUWindow
	var windowsErr error
	beside.Go(func() { windows, windowsErr = s.windows(besides, time.Now()) })
	load := s.load(workloads.MeasuredRun(t.Warmup > 0), t.Duration.Std(), t.Drop.Std())
	load.Hiccups = true
	result, err := s.offer(ctx, load)
	if err != nil {
		return m, fmt.Errorf("measured run: %w", err)
	}
	stop()
	beside.Wait()
	after := s.Scraper.ReadAll(ctx)
	groupsAfter, err := s.groupStats()
	if err := errors.Join(err, windowsErr, antagonistsErr); err != nil {
		return m, err
	}
	m = measurement(result)
	m.Windows, m.StepErrors, m.Setup = windows, stepErrors, s.Setup
	m.Seen = seen(s.Layout.Topology, before, after)
	m.Throttled = s.throttled(groupsBefore, groupsAfter)
	s.mu.Lock()
	m.Tables = s.tables
	s.mu.Unlock()
	var late []string
	m.Faults, late = judgeShaping(s.shaped())
	m.Warnings = slices.Concat(s.warnings(before, after), late, []string{noiseFloor(result.Hiccups)})
	return m, nil
}

// measurement takes over what the generator measured.
func measurement(r loadgen.Result) testbed.Measurement {
	return testbed.Measurement{
		Latency: r.Latency, LatencyMeanUs: r.LatencyMeanUs, OverRange: r.OverRange,
		Offered: r.Offered, Answered: r.Answered, Failed: r.Failed, TimedOut: r.TimedOut, CutOff: r.CutOff, Unsent: r.Unsent,
		OfferedRPS: r.OfferedRPS, AchievedRPS: r.AchievedRPS,
		OutstandingMean: r.OutstandingMean, OccupiedMean: r.OccupiedMean,
		Lateness: r.Lateness,
	}
}

// load is the plan's load against the gateway, or against the entry's replicas:
// one at random for each connection, as kube-proxy picks it. run is the number
// of the run of the trial; 0 = none of them.
func (s *Session) load(run uint64, duration, drop time.Duration) loadgen.Config {
	p := s.Layout.Plan
	scheme, port := "grpc", uint16(GRPCPort)
	if p.Entry.Gateway != "" {
		scheme, port = "http", GatewayPort
	}
	var addresses []string
	for _, r := range s.Layout.Entries() {
		addresses = append(addresses, netip.AddrPortFrom(r.Addr, port).String())
	}
	return loadgen.Config{
		Target: fmt.Sprintf("%s://%s", scheme, addresses[0]), Addresses: addresses,
		Load: p.Load, RPS: p.RPS, Duration: duration, Drop: drop, Seed: p.Seed, Run: run, Draws: true,
	}
}

// offer offers a load from where the load generator stands.
func (s *Session) offer(ctx context.Context, c loadgen.Config) (loadgen.Result, error) {
	if s.Offer != nil {
		return s.Offer(ctx, c)
	}
	c.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return s.Dial(ctx, address) }
	return loadgen.Run(ctx, c)
}

// AwaitAnswers sends requests one after the other until several in a row were
// answered: a process that is ready may still lack routes or connections.
func (s *Session) AwaitAnswers(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	const rps = 50
	var last loadgen.Result
	for {
		c := s.load(0, (goodInARow+1)*time.Second/rps-1, 0) // the first is due after a pace
		c.RPS, c.Load = rps, workloads.Load{Schedule: "open", Arrivals: "even", Timeout: workloads.Duration(5 * time.Second)}
		result, err := s.offer(within, c)
		if err == nil && result.Answered >= goodInARow && result.Answered == result.Offered {
			return nil
		}
		if last = result; within.Err() == nil {
			err = Pause(within, 100*time.Millisecond)
		}
		if within.Err() != nil {
			return fmt.Errorf("wait for %d answers in a row (last try: %d of %d, %s): %w", goodInARow, last.Answered, last.Offered, strings.Join(last.Faults, "; "), errors.Join(context.Cause(within), err))
		}
	}
}

// control calls step every period until ctx ends. A step that was going on
// then is no failure.
func (s *Session) control(ctx context.Context, step func(context.Context) error) (failed []string) {
	period := s.Layout.Plan.Control.Period.Std()
	if period == 0 {
		return nil
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return failed
		case <-ticker.C:
		}
		if err := step(ctx); err != nil && ctx.Err() == nil {
			failed = append(failed, fmt.Sprintf("at %v: %v", time.Since(s.Began).Round(time.Millisecond), err))
		}
	}
}

// windows measures the CPU time of the replicas in whole control windows of
// the measured time, which starts Drop after began; a run that is shorter than
// a window has one.
func (s *Session) windows(ctx context.Context, began time.Time) ([]testbed.CPUWindow, error) {
	t := s.Layout.Plan.Timing
	length := s.Scraper.window
	measured := (t.Duration - t.Drop).Std()
	if length == 0 || length > measured {
		length = measured
	}
	from := began.Add(t.Drop.Std())
	if err := Pause(ctx, time.Until(from)); err != nil {
		return nil, nil // the run is over
	}
	at := time.Now()
	before, err := s.usage(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	var out []testbed.CPUWindow
	for k := 1; time.Duration(k)*length <= measured; k++ {
		// The generator ends with its last answer, which can be before the
		// measured time has passed by a hair.
		ended := Pause(ctx, time.Until(from.Add(time.Duration(k)*length))) != nil
		if ended && time.Since(at) < length*9/10 {
			break
		}
		now := time.Now()
		after, err := s.usage(context.WithoutCancel(ctx)) // the last window ends with the run
		if err != nil {
			return nil, err
		}
		w := testbed.CPUWindow{Start: at.Sub(from), End: now.Sub(from), Busy: map[string]float64{}}
		for _, r := range s.Layout.Replicas {
			was, before := before[r.Name]
			is, here := after[r.Name]
			if r.Component != testbed.GatewayComponent && before && here {
				w.Busy[r.Name] = float64(is-was) / (float64(now.Sub(at)) * usable(s.Layout.Plan, s.Layout.Nodes[r.On].Node))
			}
		}
		out = append(out, w)
		at, before = now, after
	}
	return out, nil
}

// usage is the CPU time that each replica has used, of its group or, without
// groups, of its process as its exporter says. One that cannot be read is absent.
func (s *Session) usage(ctx context.Context) (map[string]time.Duration, error) {
	used := map[string]time.Duration{}
	if s.Groups == nil {
		for name, r := range s.Scraper.ReadAll(ctx).Of {
			used[name] = time.Duration(r.CPUSeconds * float64(time.Second))
		}
		return used, nil
	}
	stats, err := s.groupStats()
	for i, st := range stats {
		used[s.Layout.Replicas[i].Name] = st.Usage
	}
	return used, err
}

// groupStats reads the CPU counters of all replicas that have groups.
func (s *Session) groupStats() ([]tc.CPUStats, error) {
	stats := make([]tc.CPUStats, len(s.Groups))
	for i, g := range s.Groups {
		var err error
		if stats[i], err = g.Stats(); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// throttled is the accounting of the replicas that have a quota, where it can be
// read.
func (s *Session) throttled(before, after []tc.CPUStats) map[string]testbed.Throttling {
	out := map[string]testbed.Throttling{}
	if s.Layout.Plan.App.Server.LimitCores == 0 || s.Groups == nil {
		return out
	}
	for i, r := range s.Layout.Replicas {
		if r.Component == testbed.GatewayComponent {
			continue
		}
		out[r.Name] = testbed.Throttling{
			Periods:       int64(after[i].Periods - before[i].Periods),
			Throttled:     int64(after[i].Throttled - before[i].Throttled),
			ThrottledTime: after[i].ThrottledTime - before[i].ThrottledTime,
		}
	}
	return out
}
