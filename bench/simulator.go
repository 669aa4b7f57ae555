package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"heartbed/experiments"
	"heartbed/heart"
	"heartbed/heart/policy"
	"heartbed/testbed/sim"
)

// runSimulator prints the events that one core of the simulator handles a
// second and the memory it holds, for runs of growing length: the memory must
// not grow with them.
func runSimulator(ctx context.Context, out io.Writer, o options) error {
	s, err := experiments.Load("LAN")
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "chain of 5, 400 RPS, heart\tsimulated\tevents\twall\tevents/s and core\tlive heap\t")
	for _, length := range []time.Duration{300 * time.Second, 1200 * time.Second, 4800 * time.Second} {
		e, err := s.Experiment(experiments.Selection{
			Apps: []string{"dag"}, Methods: []string{"heart"}, RPS: []float64{400}, Repetitions: 1,
			Seed: &o.seed, Duration: &length,
		}, "sim")
		if err != nil {
			return err
		}
		if err := simulate(ctx, w, e, length); err != nil {
			return err
		}
	}
	return w.Flush()
}

func simulate(ctx context.Context, w io.Writer, e *experiments.Experiment, length time.Duration) error {
	trial := e.Trials[0]
	session, err := sim.Backend{}.Start(ctx, trial.Plan)
	if err != nil {
		return err
	}
	defer session.Close()
	p, err := policy.New(trial.Method.Policy, trial.Method.Params)
	if err != nil {
		return err
	}
	control := &heart.Controller{Observer: session, Policy: p, Router: session}
	step := func(ctx context.Context) error { _, err := control.Step(ctx); return err }
	if err := step(ctx); err != nil {
		return err
	}
	start := time.Now()
	m, err := session.Run(ctx, step)
	if err != nil {
		return err
	}
	wall := time.Since(start)
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	runtime.KeepAlive(session)
	_, err = fmt.Fprintf(w, "\t%v\t%d\t%.2f s\t%.2f M\t%.1f MiB\t\n", length, m.Events, wall.Seconds(),
		float64(m.Events)/wall.Seconds()/1e6, float64(mem.HeapAlloc)/(1<<20))
	return err
}
