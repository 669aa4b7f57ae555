package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"heartbed/heart/flow"
)

// lemonTimes is what one size took, as medians.
type lemonTimes struct {
	goBuild, cold, warm  time.Duration
	build, int64s, int32 time.Duration // LEMON: build and run() with int64, run() with int
}

// runLemon compares heart/flow with LEMON on the same dense transport problems.
// The time of heart/flow includes checking the input, copying it in and reading
// the solution out; that of LEMON is run() alone. Both exclude building the graph.
func runLemon(ctx context.Context, out io.Writer, o options) error {
	dir, err := os.MkdirTemp("", "heartbed-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := compileLemon(ctx, dir)
	if err != nil {
		fmt.Fprintf(out, "LEMON is left out: %v\n", err)
	}
	fmt.Fprintf(out, "dense transport, medians of %d to %d repetitions, seed %d; warm: after a change of all costs and supplies by up to 1 %%\n",
		o.reps, 100*o.reps, o.seed)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "square\tarcs\tGo cold ms\tLEMON int64 ms\tLEMON int32 ms\tcold/int64\tcold/int32\tGo warm ms\twarm/cold\tGo build ms\tLEMON build ms\t")
	for _, size := range []int{10, 100, 200, 400, 800} {
		o := o
		o.reps *= max(1, 1000/size) // short ones are repeated more often, up to a hundredfold
		t, err := compareSize(ctx, size, program, dir, o)
		if err != nil {
			return fmt.Errorf("%d square: %w", size, err)
		}
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", size, size*size,
			ms(t.cold), ms(t.int64s), ms(t.int32), ratio(t.cold, t.int64s), ratio(t.cold, t.int32),
			ms(t.warm), ratio(t.warm, t.cold), ms(t.goBuild), ms(t.build))
	}
	return table.Flush()
}

func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(d)/1e6, 'g', 3, 64)
}

func ratio(a, b time.Duration) string {
	if b == 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(a)/float64(b), 'f', 2, 64)
}

// compareSize measures one size, repetition by repetition in turns; without a
// program, the Go side alone.
func compareSize(ctx context.Context, size int, program, dir string, o options) (lemonTimes, error) {
	p := newTransport(size, o.seed)
	var r lemonRuns
	if program != "" {
		peer, err := startLemon(ctx, program, filepath.Join(dir, fmt.Sprintf("transport-%d.min", size)), p)
		if err != nil {
			return lemonTimes{}, err
		}
		defer peer.stop()
		r.peer = peer
	}
	n, rng := p.network(), rand.New(rand.NewPCG(o.seed, 0))
	if _, _, err := solve(&r.solver, n); err != nil {
		return lemonTimes{}, err
	}
	for drifted := p; len(r.colds) < o.reps; {
		drifted = drifted.drift(rng)
		drifted.apply(n)
		if err := r.repeat(p, n); err != nil {
			return lemonTimes{}, err
		}
	}
	return lemonTimes{
		goBuild: median(r.builds), cold: median(r.colds), warm: median(r.warms),
		build: median(r.peerBuilds), int64s: median(r.int64s), int32: median(r.int32s),
	}, nil
}

// lemonRuns collects the times of all repetitions of one size.
type lemonRuns struct {
	solver flow.Solver // whose last basis the warm starts go on from
	peer   *lemonPeer  // nil if LEMON is left out

	builds, colds, warms       []time.Duration
	peerBuilds, int64s, int32s []time.Duration
}

// repeat builds and solves p once on each side, and the drifted network warm.
func (r *lemonRuns) repeat(p transport, drifted *flow.Network) error {
	start := time.Now()
	n := p.network()
	build := time.Since(start)
	cost, cold, err := solve(new(flow.Solver), n)
	if err != nil {
		return err
	}
	_, warm, err := solve(&r.solver, drifted)
	if err != nil {
		return err
	}
	r.builds, r.colds, r.warms = append(r.builds, build), append(r.colds, cold), append(r.warms, warm)
	if r.peer == nil {
		return nil
	}
	wide, narrow, err := r.peer.solve()
	if err != nil {
		return err
	}
	for _, a := range []lemonAnswer{wide, narrow} {
		if a.cost != cost {
			return fmt.Errorf("the objectives differ: LEMON (%s) %d, heart/flow %d", a.kind, a.cost, cost)
		}
	}
	r.peerBuilds = append(r.peerBuilds, wide.build)
	r.int64s, r.int32s = append(r.int64s, wide.solve), append(r.int32s, narrow.solve)
	return nil
}

// solve times one solve and proves its answer.
func solve(solver *flow.Solver, n *flow.Network) (cost int64, took time.Duration, err error) {
	start := time.Now()
	s, err := solver.Solve(n)
	took = time.Since(start)
	if err != nil {
		return 0, 0, err
	}
	return s.Cost, took, flow.Verify(n, s)
}

// median returns the middle of the sorted times (the upper one of two), 0 if
// there are none.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}
