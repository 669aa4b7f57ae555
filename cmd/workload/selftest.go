package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/workloads"
	"heartbed/workloads/loadgen"
	"heartbed/workloads/loadgen/loadgentest"
)

// The fault of the stall test, and what it must be seen as. Of the requests
// due every 10 ms a tenth falls into the stall and waits for its end, evenly
// from 0 to 1 s: the highest hundredth of all waits 900 ms or more, and 2 ms
// of service come on top.
const (
	stallRate    = 100
	stallService = 2 * time.Millisecond
	stallLength  = time.Second
	stallEvery   = 10 * time.Second
	stallP99     = 902 * time.Millisecond
	// One connection answers what waited one by one, 2 ms each: the request
	// due 10k ms into the stall has k before it, so its latency falls by only
	// 8 ms from one to the next, and the highest hundredth begins at 922 ms.
	// What the server's timer adds to the 2 ms counts ten times here.
	stallOneP99       = 922 * time.Millisecond
	stallTolerance    = 0.02
	stallOneTolerance = 0.05

	// A machine that lets a ready thread wait longer than this (P99) is too
	// busy for the test to say anything about the generator.
	busyAfter = 5 * time.Millisecond

	lateRate  = 2000
	lateLimit = 10 * time.Millisecond // beyond it a trial is INVALID
)

func selftestCommand() *cobra.Command {
	var short bool
	cmd := &cobra.Command{
		Use:   "selftest",
		Short: "Show that the load generator measures right on this machine",
		Long: `Selftest offers load to a server on loopback whose latency is known: 2 ms of
service, and every 10 s it does nothing for 1 s. The open schedule must see
the true P99 at any number of connections. The wrk2 schedule is shown beside
it: it hides the stall the more connections it has. Then the highest rate and
the generator's own delay are measured.

Exit codes: 0 all passed, 1 something did not.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			length := 60 * time.Second
			if short {
				length = 20 * time.Second
			}
			return selftest(cmd.Context(), cmd.OutOrStdout(), length)
		},
	}
	cmd.Flags().BoolVar(&short, "short", false, "two stalls (20 s) instead of six")
	return cmd
}

// stallCase is one generator against a stalling server of its own.
type stallCase struct {
	schedule    string
	connections int
	want        time.Duration // P99; 0 = shown only
	result      loadgen.Result
}

func stallCases() []stallCase {
	cases := []stallCase{
		{schedule: "open", connections: 32, want: stallP99},
		{schedule: "open", connections: 128, want: stallP99},
		{schedule: "open", connections: 1000, want: stallP99},
		{schedule: "open", connections: 1, want: stallOneP99},
	}
	for _, n := range []int{1, 32, 128, 1000} {
		cases = append(cases, stallCase{schedule: "wrk2", connections: n})
	}
	return cases
}

func (c *stallCase) run(ctx context.Context, length time.Duration) error {
	server, err := loadgentest.Start(loadgentest.Stall{
		Service: stallService, Length: stallLength, Every: stallEvery, First: stallEvery / 2,
	})
	if err != nil {
		return err
	}
	defer server.Close()
	l := workloads.Load{Schedule: c.schedule, Connections: c.connections}
	if c.schedule == "wrk2" {
		l.Threads, l.Stagger = min(2, c.connections), workloads.Duration(5*time.Millisecond)
	} else {
		l.Arrivals = "even"
	}
	c.result, err = loadgen.Run(ctx, loadgen.Config{Target: server.URL, Load: l, RPS: stallRate, Duration: length})
	return err
}

func (c *stallCase) p99() time.Duration {
	return time.Duration(c.result.Latency.ValueAtQuantile(99)) * time.Microsecond
}

func (c *stallCase) passed() bool {
	off, tolerance, r := float64(c.p99()-c.want)/float64(c.want), stallTolerance, c.result
	if c.connections == 1 {
		tolerance = stallOneTolerance
	}
	return math.Abs(off) <= tolerance && r.Answered == r.Offered
}

// errSelftest: the generator does not measure right here.
var errSelftest = errors.New("selftest failed")

// selftest runs all parts and prints what they find.
func selftest(ctx context.Context, out io.Writer, length time.Duration) error {
	fmt.Fprintf(out, "Stall test: %v of service, no answer for %v every %v, %d requests a second for %v, all cases at once.\n",
		stallService, stallLength, stallEvery, stallRate, length)
	cases := stallCases()
	stop := hiccups(ctx)
	defer stop()
	if err := runStalls(ctx, cases, length); err != nil {
		return err
	}
	failed := printStalls(out, cases)
	if err := selftestRate(ctx, out); err != nil {
		return err
	}
	late, err := selftestLateness(ctx, out)
	if err != nil {
		return err
	}
	hiccup := stop()
	fmt.Fprintf(out, "A thread of this machine waited for a CPU: P99 %.1f ms.\n", float64(hiccup)/1e6)
	if failed += late; failed > 0 {
		fmt.Fprintln(out, "FAIL")
		if hiccup > busyAfter {
			return fmt.Errorf("%w: %d of its checks, but the machine is too busy to tell: repeat when it is idle", errSelftest, failed)
		}
		return fmt.Errorf("%w: %d of its checks", errSelftest, failed)
	}
	fmt.Fprintln(out, "PASS")
	return nil
}

func runStalls(ctx context.Context, cases []stallCase, length time.Duration) error {
	var wait sync.WaitGroup
	errs := make([]error, len(cases))
	for i := range cases {
		wait.Go(func() { errs[i] = cases[i].run(ctx, length) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// hiccups measures how late a sleeping thread is woken, until the returned
// function is called, which gives the P99.
func hiccups(ctx context.Context) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	late := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			start := time.Now()
			time.Sleep(hiccupSleep)
			_ = late.RecordValue((time.Since(start) - hiccupSleep).Microseconds()) // an hour and more is late enough
		}
	}()
	return func() time.Duration {
		cancel()
		<-done
		return time.Duration(late.ValueAtQuantile(99)) * time.Microsecond
	}
}

const hiccupSleep = 5 * time.Millisecond

// printStalls prints a line a case and gives the number that did not pass.
func printStalls(out io.Writer, cases []stallCase) (failed int) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "schedule\tconnections\tmean ms\tP90 ms\tP99 ms\ttrue P99 ms\t\t")
	for _, c := range cases {
		truth, verdict := "902", "shown only"
		if c.want > 0 {
			truth, verdict = strconv.FormatInt(c.want.Milliseconds(), 10), "PASS"
			if !c.passed() {
				verdict = fmt.Sprintf("FAIL (%d of %d answered)", c.result.Answered, c.result.Offered)
				failed++
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.0f\t%.0f\t%s\t%s\t\n", c.schedule, c.connections, c.result.LatencyMeanUs/1000,
			float64(c.result.Latency.ValueAtQuantile(90))/1000, float64(c.p99())/1e6, truth, verdict)
	}
	w.Flush()
	fmt.Fprint(out, `One open connection sees about 922 ms, rightly: what waited is answered one by
one after the stall, 2 ms each. A wrk2 connection has one request outstanding
and its own pace: the more of them, the fewer requests meet the stall.
`)
	return failed
}

// selftestRate measures the highest rate; the server shares the machine.
func selftestRate(ctx context.Context, out io.Writer) error {
	r, err := loopback(ctx, loadgen.Config{
		ClosedLoop: true, Duration: 2 * time.Second, Drop: 200 * time.Millisecond, Load: workloads.Load{Connections: 32},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Highest rate, 32 connections, the server on the same CPUs: %.0f requests a second.\n", r.AchievedRPS)
	return nil
}

// selftestLateness gives 1 if the generator's own delay is too long for a
// valid trial.
func selftestLateness(ctx context.Context, out io.Writer) (failed int, err error) {
	r, err := loopback(ctx, loadgen.Config{
		RPS: lateRate, Duration: 3 * time.Second, Load: workloads.Load{Schedule: "open", Arrivals: "even", Connections: 128},
	})
	if err != nil {
		return 0, err
	}
	verdict := "PASS"
	p99 := time.Duration(r.Lateness.ValueAtQuantile(99)) * time.Microsecond
	if p99 > lateLimit || r.Answered != r.Offered {
		verdict, failed = "FAIL", 1
	}
	fmt.Fprintf(out, "Own delay at %d requests a second: P50 %d us, P99 %d us, highest %d us, at most %v at P99 for a valid trial: %s.\n", lateRate,
		r.Lateness.ValueAtQuantile(50), r.Lateness.ValueAtQuantile(99), r.Lateness.Max(), lateLimit, verdict)
	return failed, nil
}

// loopback runs a load against a server that answers at once.
func loopback(ctx context.Context, c loadgen.Config) (loadgen.Result, error) {
	server, err := loadgentest.Start(loadgentest.Stall{})
	if err != nil {
		return loadgen.Result{}, err
	}
	defer server.Close()
	c.Target = server.URL
	return loadgen.Run(ctx, c)
}
