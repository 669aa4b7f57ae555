package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settle     = 2 * time.Second // until memory is read
	loadWindow = 3 * time.Second // CPU is measured over
	lowRate    = 10              // requests/s: each finds caches cold and everything asleep
)

// runService prints the memory of idle service processes and the CPU time of
// a call, at a low rate and as fast as answers come.
func runService(ctx context.Context, out io.Writer, o options) error {
	dir, err := os.MkdirTemp("", "heartbed-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := buildWorkload(ctx, dir)
	if err != nil {
		return err
	}
	f, err := startFleet(ctx, dir, program)
	defer f.stop()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "memory of %d service processes, MiB\tRSS median\tRSS max\tPSS median\tRSS of all\tPSS of all\t\n", len(f.processes)-1)
	if err := f.memory(ctx, w, "idle, no request yet"); err != nil {
		return err
	}
	costs, err := f.costs(ctx, o.reps)
	if err != nil {
		return err
	}
	if err := f.memory(ctx, w, fmt.Sprintf("idle after %d requests", costs.requests)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return costs.print(out, o.reps)
}

// callCosts are what calls cost.
type callCosts struct {
	idle      cpuUse // a second without requests
	low, high []callCost
	requests  int64
}

// callCost is the CPU time of a hop, and of the gateway for a request, in one
// repetition; what idle processes use anyway is taken off.
type callCost struct{ hop, gateway time.Duration }

// costs measures in turns, so that both rates see the same machine.
func (f *fleet) costs(ctx context.Context, reps int) (c callCosts, err error) {
	c.idle, _, err = f.during(func() error { return wait(ctx, loadWindow) })
	if err != nil {
		return c, err
	}
	c.idle = c.idle.times(1 / loadWindow.Seconds())
	for range reps {
		low, err := f.cost(ctx, &c, "-R", strconv.Itoa(lowRate))
		if err != nil {
			return c, err
		}
		high, err := f.cost(ctx, &c, "--schedule", "closed", "-c", strconv.Itoa(hopCallers))
		if err != nil {
			return c, err
		}
		c.low, c.high = append(c.low, low), append(c.high, high)
	}
	return c, nil
}

// cost offers a load and counts its requests.
func (f *fleet) cost(ctx context.Context, c *callCosts, schedule ...string) (callCost, error) {
	var result struct{ Answered, Failed int64 }
	used, took, err := f.during(func() error {
		_, err := load(ctx, f.program, &result, append(schedule, "-d", loadWindow.String(), f.url)...)
		return err
	})
	if err != nil {
		return callCost{}, err
	}
	if result.Answered == 0 || result.Failed > 0 {
		return callCost{}, fmt.Errorf("%d requests answered, %d failed, expected all answered", result.Answered, result.Failed)
	}
	c.requests += result.Answered
	idle, n := c.idle.times(took.Seconds()), time.Duration(result.Answered)
	return callCost{
		hop:     (used.callers - idle.callers) / (n * time.Duration(len(f.callers))),
		gateway: (used.gateway - idle.gateway) / n,
	}, nil
}

func (c callCosts) print(out io.Writer, reps int) error {
	fmt.Fprintf(out, "CPU time besides the work; a hop: the client's side and the server's of a process that does nothing but call on; %d runs of %v in turns\n", reps, loadWindow)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "load\ta hop us: median\tmin\tmax\tgateway a request us: median\t")
	for _, row := range []struct {
		name  string
		costs []callCost
	}{{fmt.Sprintf("%d requests/s", lowRate), c.low}, {fmt.Sprintf("closed loop, %d outstanding", hopCallers), c.high}} {
		var hops, gateways []time.Duration
		for _, x := range row.costs {
			hops, gateways = append(hops, x.hop), append(gateways, x.gateway)
		}
		slices.Sort(hops)
		slices.Sort(gateways)
		us := func(t time.Duration) float64 { return float64(t) / 1e3 }
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t\n", row.name, us(rank(hops, .5)), us(rank(hops, 0)), us(rank(hops, 1)), us(rank(gateways, .5)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "all processes idle: %v of CPU a second\n", c.idle.all.Round(10*time.Microsecond))
	return err
}

// memory prints what the service processes hold.
func (f *fleet) memory(ctx context.Context, w io.Writer, when string) error {
	if err := wait(ctx, settle); err != nil {
		return err
	}
	var rss, pss []float64
	for _, p := range f.processes {
		if p.config.Gateway {
			continue
		}
		r, s, err := resident(p.cmd.Process.Pid)
		if err != nil {
			return err
		}
		rss, pss = append(rss, r), append(pss, s)
	}
	total := func(of []float64) (sum float64) {
		for _, x := range of {
			sum += x
		}
		return sum
	}
	slices.Sort(rss)
	slices.Sort(pss)
	_, err := fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t\n", when, rss[len(rss)/2], rss[len(rss)-1], pss[len(pss)/2], total(rss), total(pss))
	return err
}

// resident is the memory of a process in MiB: all that it has in memory, and
// with shared pages counted in part, so that a sum counts each once.
func resident(pid int) (rss, pss float64, err error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	return residentOf(path, string(text))
}

func residentOf(path, text string) (rss, pss float64, err error) {
	for name, mib := range map[string]*float64{"Rss:": &rss, "Pss:": &pss} {
		_, rest, _ := strings.Cut(text, "\n"+name)
		var kib float64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			return 0, 0, fmt.Errorf("%s: read %s %w", path, name, err)
		}
		*mib = kib / 1024
	}
	return rss, pss, nil
}

// cpuUse is CPU time by part of the fleet.
type cpuUse struct{ callers, gateway, all time.Duration }

func (u cpuUse) times(x float64) cpuUse {
	scale := func(t time.Duration) time.Duration { return time.Duration(float64(t) * x) }
	return cpuUse{scale(u.callers), scale(u.gateway), scale(u.all)}
}

// during gives the CPU time used while do runs, and how long that took.
func (f *fleet) during(do func() error) (used cpuUse, took time.Duration, err error) {
	before, err := f.cpu()
	if err != nil {
		return used, 0, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return used, 0, err
	}
	took = time.Since(began)
	after, err := f.cpu()
	return cpuUse{after.callers - before.callers, after.gateway - before.gateway, after.all - before.all}, took, err
}

// cpu is what the fleet has used so far.
func (f *fleet) cpu() (u cpuUse, err error) {
	for _, p := range f.processes {
		t, err := cpuOf(p.cmd.Process.Pid)
		if err != nil {
			return u, err
		}
		u.all += t
		switch {
		case p.config.Gateway:
			u.gateway += t
		case f.callers[p.config.Component]:
			u.callers += t
		}
	}
	return u, nil
}

// cpuOf is the CPU time that a process has used, to the nanosecond; /proc
// counts in ticks of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	var t unix.Timespec
	// The id of another process's CPU clock, as clock_getcpuclockid(3) makes it.
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// wait waits unless ctx ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
