package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"heartbed/heart/flow"
)

//go:embed lemon/main.cpp
var lemonSource []byte

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
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "square\tarcs\tGo cold ms\tLEMON int64 ms\tLEMON int32 ms\tcold/int64\tcold/int32\tGo warm ms\twarm/cold\tGo build ms\tLEMON build ms\t")
	for _, size := range []int{10, 100, 200, 400, 800} {
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

// compileLemon builds the C++ side and returns the path of the program.
func compileLemon(ctx context.Context, dir string) (string, error) {
	source, program := filepath.Join(dir, "main.cpp"), filepath.Join(dir, "lemon")
	if err := os.WriteFile(source, lemonSource, 0o600); err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	compile := exec.CommandContext(ctx, "g++", "-O2", "-DNDEBUG", "-o", program, source)
	compile.Stderr = &stderr
	err := compile.Run()
	switch {
	case err == nil:
		return program, nil
	case errors.Is(err, exec.ErrNotFound) || bytes.Contains(stderr.Bytes(), []byte("lemon/")):
		return "", errors.New("g++ or the LEMON headers are missing; on Debian: apt-get install liblemon-dev g++")
	}
	return "", fmt.Errorf("compile lemon/main.cpp: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
}

// compareSize measures one size; without a program, the Go side alone.
func compareSize(ctx context.Context, size int, program, dir string, o options) (lemonTimes, error) {
	p := newTransport(size, o.seed)
	t, cost, err := timeGo(p, o)
	if err != nil || program == "" {
		return t, err
	}
	path := filepath.Join(dir, fmt.Sprintf("transport-%d.min", size))
	f, err := os.Create(path)
	if err != nil {
		return t, err
	}
	if err := errors.Join(p.writeDIMACS(f), f.Close()); err != nil {
		return t, err
	}
	return t, timeLemon(ctx, &t, program, path, cost, o.reps)
}

// timeGo measures heart/flow and returns the optimum. Each warm solve follows a
// drift of all numbers and is checked against a cold one.
func timeGo(p transport, o options) (t lemonTimes, cost int64, err error) {
	var builds, colds, warms []time.Duration
	for range o.reps {
		start := time.Now()
		n := p.network()
		builds = append(builds, time.Since(start))
		start = time.Now()
		s, err := n.Solve()
		colds = append(colds, time.Since(start))
		if err != nil {
			return t, 0, err
		}
		if err := flow.Verify(n, s); err != nil {
			return t, 0, err
		}
		cost = s.Cost
	}
	n, rng := p.network(), rand.New(rand.NewPCG(o.seed, 0))
	var solver flow.Solver
	for k := range o.reps + 1 {
		start := time.Now()
		s, err := solver.Solve(n)
		took := time.Since(start)
		if err != nil {
			return t, 0, err
		}
		if err := flow.Verify(n, s); err != nil {
			return t, 0, err
		}
		if k > 0 {
			warms = append(warms, took)
		}
		p = p.drift(rng)
		p.apply(n)
	}
	t.goBuild, t.cold, t.warm = median(builds), median(colds), median(warms)
	return t, cost, nil
}

// timeLemon measures LEMON on the file and checks its optimum.
func timeLemon(ctx context.Context, t *lemonTimes, program, path string, cost int64, reps int) error {
	out, err := exec.CommandContext(ctx, program, path, strconv.Itoa(reps)).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return err
	}
	solves, builds := map[string][]time.Duration{}, []time.Duration{}
	for line := range bytes.Lines(out) {
		var kind string
		var found, build, solve int64
		if _, err := fmt.Sscan(string(line), &kind, &found, &build, &solve); err != nil {
			return fmt.Errorf("read LEMON's answer %q: %w", line, err)
		}
		if found != cost {
			return fmt.Errorf("the objectives differ: LEMON (%s) %d, heart/flow %d", kind, found, cost)
		}
		solves[kind] = append(solves[kind], time.Duration(solve))
		if kind == "int64" {
			builds = append(builds, time.Duration(build))
		}
	}
	if len(solves["int64"]) != reps || len(solves["int32"]) != reps {
		return fmt.Errorf("LEMON answered %d and %d times, want %d", len(solves["int64"]), len(solves["int32"]), reps)
	}
	t.build, t.int64s, t.int32 = median(builds), median(solves["int64"]), median(solves["int32"])
	return nil
}

// median returns the middle of the sorted times (the upper one of two).
func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
