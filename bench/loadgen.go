package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"heartbed/workloads/loadgen/loadgentest"
)

// vegeta is the best known Go load generator; a tool of its own, not a
// dependency.
const vegeta = "github.com/tsenart/vegeta/v12@v12.13.0"

// Both generators run on one core with the same connections; the server, which
// does next to nothing, is in this process and has the other cores.
const (
	attackConnections = 32
	attackLength      = 3 * time.Second
)

// attack is one run at the highest rate.
type attack struct {
	rps     float64
	cpuEach time.Duration // of the generator, a request
}

// runLoadgen measures the highest rate of the load generator on one core, and
// its memory.
func runLoadgen(ctx context.Context, out io.Writer, o options) error {
	dir, err := os.MkdirTemp("", "heartbed-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ours, err := buildWorkload(ctx, dir)
	if err != nil {
		return err
	}
	theirs := filepath.Join(dir, "vegeta")
	if err := command(ctx, []string{"GOBIN=" + dir}, "go", "install", vegeta); err != nil {
		fmt.Fprintf(out, "vegeta is left out: %v\n", err)
		theirs = ""
	}
	server, err := loadgentest.Start(loadgentest.Stall{})
	if err != nil {
		return err
	}
	defer server.Close()
	if err := compareRates(ctx, out, ours, theirs, server.URL, o.reps); err != nil {
		return err
	}
	return connectionMemory(ctx, out, ours, server.URL)
}

func compareRates(ctx context.Context, out io.Writer, ours, theirs, url string, reps int) error {
	var mine, other []attack
	for range reps { // in turns, so that both see the same machine
		a, err := attackWithOurs(ctx, ours, url)
		if err != nil {
			return err
		}
		mine = append(mine, a)
		if theirs == "" {
			continue
		}
		if a, err = attackWithVegeta(ctx, theirs, url); err != nil {
			return err
		}
		other = append(other, a)
	}
	fmt.Fprintf(out, "as fast as answers come, %d connections, GOMAXPROCS=1, medians of %d runs of %v in turns\n", attackConnections, reps, attackLength)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "generator\trequests/s\tCPU a request us\trequests a second of CPU\t")
	for _, g := range []struct {
		name string
		runs []attack
	}{{"workload load", mine}, {"vegeta", other}} {
		if len(g.runs) == 0 {
			continue
		}
		slices.SortFunc(g.runs, func(a, b attack) int { return int(a.rps - b.rps) })
		rps := g.runs[len(g.runs)/2].rps
		slices.SortFunc(g.runs, func(a, b attack) int { return int(a.cpuEach - b.cpuEach) })
		each := g.runs[len(g.runs)/2].cpuEach
		fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%.0f\t\n", g.name, rps, float64(each)/1e3, 1/each.Seconds())
	}
	return w.Flush()
}

// attackWithOurs runs the closed loop in a process of its own.
func attackWithOurs(ctx context.Context, program, url string) (attack, error) {
	var result struct{ Answered, Failed int64 }
	state, err := load(ctx, program, &result, "--schedule", "closed", "-c", strconv.Itoa(attackConnections), "-d", attackLength.String(), url)
	if err != nil {
		return attack{}, err
	}
	return newAttack(result.Answered, result.Failed, state)
}

// load runs our generator on one core and decodes what it prints.
func load(ctx context.Context, program string, result any, args ...string) (*os.ProcessState, error) {
	var stdout bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append([]string{"load", "--json", "-q"}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdout, cmd.Stderr = &stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	return cmd.ProcessState, json.Unmarshal(stdout.Bytes(), result)
}

// attackWithVegeta does the same; its report is made by a second process.
func attackWithVegeta(ctx context.Context, program, url string) (attack, error) {
	hits := program + ".bin"
	cmd := exec.CommandContext(ctx, program, "attack", "-rate=0", "-max-workers", strconv.Itoa(attackConnections),
		"-workers", strconv.Itoa(attackConnections), "-duration", attackLength.String(), "-output", hits)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader([]byte("GET "+url+"\n")), os.Stderr
	if err := cmd.Run(); err != nil {
		return attack{}, fmt.Errorf("%v: %w", cmd.Args, err)
	}
	text, err := exec.CommandContext(ctx, program, "report", "-type=json", hits).Output()
	if err != nil {
		return attack{}, fmt.Errorf("vegeta report: %w", err)
	}
	var result struct {
		Requests int64
		Success  float64
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return attack{}, fmt.Errorf("vegeta report: %w", err)
	}
	return newAttack(result.Requests, int64(float64(result.Requests)*(1-result.Success)), cmd.ProcessState)
}

func newAttack(answered, failed int64, state *os.ProcessState) (attack, error) {
	if answered == 0 || failed > 0 {
		return attack{}, fmt.Errorf("%d requests answered, %d failed, expected all answered", answered, failed)
	}
	return attack{
		rps:     float64(answered) / attackLength.Seconds(),
		cpuEach: (state.UserTime() + state.SystemTime()) / time.Duration(answered),
	}, nil
}

// connectionMemory prints the memory of the generator with few and many
// connections, all of them used.
func connectionMemory(ctx context.Context, out io.Writer, program, url string) error {
	for _, n := range []int{1, 1000} {
		var result struct{ Connections int }
		state, err := load(ctx, program, &result, "-R", "1000", "-d", "3s", "-c", strconv.Itoa(n), url)
		if err != nil {
			return err
		}
		kib, err := peakMemory(state)
		if err != nil {
			fmt.Fprintf(out, "memory is left out: %v\n", err)
			return nil
		}
		fmt.Fprintf(out, "memory at most, %d connections at 1,000 requests/s: %.1f MiB\n", result.Connections, float64(kib)/1024)
	}
	return nil
}

// command runs a program whose output matters only if it fails.
func command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", cmd.Args, err, bytes.TrimSpace(text))
	}
	return nil
}
