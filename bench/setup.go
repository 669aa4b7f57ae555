package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"heartbed/experiments"
	"heartbed/testbed"
	"heartbed/testbed/netns"
)

// mostSetups bounds the repetitions: one takes seconds.
const mostSetups = 5

// runSetup prints how long the plan of five nodes takes to stand and to go, as
// processes in network namespaces.
func runSetup(ctx context.Context, out io.Writer, o options) error {
	dir, err := os.MkdirTemp("", "heartbed-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var stages stageTimes
	backend := netns.Backend{Options: netns.Options{OnStage: stages.add}}
	if backend.Options.Workload, err = buildWorkload(ctx, dir); err != nil {
		return err
	}
	if err := backend.Check(ctx); errors.Is(err, errors.ErrUnsupported) {
		_, err := fmt.Fprintf(out, "left out: %v\n", err)
		return err
	} else if err != nil {
		return err
	}
	plan, err := lanPlan("netns")
	if err != nil {
		return err
	}
	up, down, err := standAndGo(ctx, backend, plan, min(o.reps, mostSetups))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d nodes, %d replicas and a gateway; the program is built beforehand; %d runs\n", len(plan.Nodes), len(plan.Replicas), len(up))
	if err := printSetup(out, up, down); err != nil {
		return err
	}
	return stages.print(out)
}

// stageTimes are the times of each stage of setting up, in their order.
type stageTimes struct {
	names []string
	took  map[string][]time.Duration
}

func (s *stageTimes) add(name string, took time.Duration) {
	if s.took == nil {
		s.took = map[string][]time.Duration{}
	}
	if s.took[name] == nil {
		s.names = append(s.names, name)
	}
	s.took[name] = append(s.took[name], took)
}

// print leaves out what takes no time to speak of.
func (s *stageTimes) print(out io.Writer) error {
	var parts []string
	for _, name := range s.names {
		slices.Sort(s.took[name])
		if median := rank(s.took[name], .5); median >= 5*time.Millisecond {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, median.Seconds()))
		}
	}
	_, err := fmt.Fprintf(out, "stages, median s: %s\n", strings.Join(parts, ", "))
	return err
}

// standAndGo times a plan's setting up and its removal, sorted.
func standAndGo(ctx context.Context, backend testbed.Backend, plan testbed.Plan, times int) (up, down []time.Duration, err error) {
	for range times {
		began := time.Now()
		session, err := backend.Start(ctx, plan)
		if err != nil {
			return nil, nil, err
		}
		stands := time.Now()
		if err := session.Close(); err != nil {
			return nil, nil, err
		}
		up, down = append(up, stands.Sub(began)), append(down, time.Since(stands))
	}
	slices.Sort(up)
	slices.Sort(down)
	return up, down, nil
}

func printSetup(out io.Writer, up, down []time.Duration) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmedian s\tmin\tmax\t")
	for _, row := range []struct {
		name  string
		times []time.Duration
	}{{"until the session is ready", up}, {"until all is removed", down}} {
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\t\n", row.name, rank(row.times, .5).Seconds(), rank(row.times, 0).Seconds(), rank(row.times, 1).Seconds())
	}
	return w.Flush()
}

// lanPlan is the chain of five in LAN on a backend.
func lanPlan(backend string) (testbed.Plan, error) {
	s, err := experiments.Load("LAN")
	if err != nil {
		return testbed.Plan{}, err
	}
	e, err := s.Experiment(experiments.Selection{Apps: []string{"dag"}, Methods: []string{"heart"}, RPS: []float64{200}, Repetitions: 1}, backend)
	if err != nil {
		return testbed.Plan{}, err
	}
	return e.Trials[0].Plan, nil
}

// buildWorkload builds the program that the testbed runs.
func buildWorkload(ctx context.Context, dir string) (program string, err error) {
	program = filepath.Join(dir, "workload")
	return program, command(ctx, nil, "go", "build", "-o", program, "heartbed/cmd/workload")
}
