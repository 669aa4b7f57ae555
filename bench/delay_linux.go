package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"heartbed/tc"
	"heartbed/tc/tctest"
)

// runDelay measures what packets between two namespaces really take.
func runDelay(ctx context.Context, out io.Writer, o options) error {
	probed := tc.Probe(ctx)
	methods := []tc.Method{tc.NFQueue, tc.Netem}
	for i, err := range []error{probed.NFQueue, probed.Netem} {
		if err != nil {
			fmt.Fprintf(out, "%s is left out: %v\n", methods[i], err)
		}
	}
	if probed.NFQueue != nil {
		methods = methods[1:]
	}
	if probed.Netem != nil {
		methods = methods[:len(methods)-1]
	}
	if len(methods) == 0 {
		return nil
	}
	pair, err := tctest.NewPair()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "echo: round trips of the kernel's own answers, 500 a second; stream: one way, 20,000 a second; busy: %d processes that burn CPU\n", runtime.NumCPU())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "method\tmachine\tload\tasked ms\tmean error ms\tP99 |error| ms\tmax ms\tpackets/s\tlate\tdropped\t")
	err = delays(ctx, table, pair, methods, o)
	return errors.Join(err, table.Flush(), pair.Close())
}

func delays(ctx context.Context, table io.Writer, pair tctest.Pair, methods []tc.Method, o options) error {
	for _, machine := range []string{"quiet", "busy"} {
		ctx, calm := context.WithCancel(ctx)
		defer calm()
		if machine == "busy" {
			if err := burn(ctx); err != nil {
				return err
			}
		}
		for _, rtt := range []time.Duration{0, 1, 10, 50} {
			for _, method := range methods {
				if err := delay(ctx, table, pair, method, machine, rtt*time.Millisecond, o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// delay measures one round-trip time, by echo and by stream; 0 is without a shaper.
func delay(ctx context.Context, table io.Writer, pair tctest.Pair, method tc.Method, machine string, rtt time.Duration, o options) error {
	var shapers []tc.Shaper
	if rtt > 0 {
		both, err := pair.Shape(ctx, tc.Link{RTT: rtt}, tc.Options{Method: method, Seed: o.seed})
		if err != nil {
			return err
		}
		shapers = both[:]
	}
	echo, err := pair.Ping(1000, time.Second/500, time.Second)
	before, err2 := counts(shapers)
	stream, err3 := pair.Stream(40_000, time.Second/20_000, time.Second)
	after, err4 := counts(shapers)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	fmt.Fprintf(table, "%s\t%s\techo\t%g\t%s\t%d\t%d\t\n", method, machine, rtt.Seconds()*1e3, errorOf(echo, rtt), before.Late, before.Dropped)
	fmt.Fprintf(table, "%s\t%s\tstream\t%g\t%s\t%d\t%d\t\n", method, machine, rtt.Seconds()*1e3/2, errorOf(stream, rtt/2),
		after.Late-before.Late, after.Dropped-before.Dropped)
	for _, s := range shapers {
		err = errors.Join(err, s.Close())
	}
	return err
}

func counts(shapers []tc.Shaper) (sum tc.Stats, err error) {
	for _, s := range shapers {
		stats, e := s.Stats()
		sum.Late, sum.Dropped, err = sum.Late+stats.Late, sum.Dropped+stats.Dropped, errors.Join(err, e)
	}
	return sum, err
}

// errorOf gives the columns on how far the times are from the one asked for.
func errorOf(arrivals []tctest.Arrival, asked time.Duration) string {
	if len(arrivals) < 2 {
		return strings.Repeat("-\t", 3) + "-"
	}
	var sum, last time.Duration
	errs := make([]time.Duration, len(arrivals))
	for i, a := range arrivals {
		errs[i] = (a.Took - asked).Abs()
		sum += a.Took - asked
		last = max(last, a.At)
	}
	slices.Sort(errs)
	mean := sum.Seconds() / float64(len(arrivals)) * 1e3
	p99 := errs[len(errs)*99/100]
	return fmt.Sprintf("%.3f\t%.3f\t%.3f\t%.0f", mean, p99.Seconds()*1e3, errs[len(errs)-1].Seconds()*1e3,
		float64(len(arrivals)-1)/(last-arrivals[0].At).Seconds())
}

// burn keeps all CPUs busy with other processes until ctx ends.
func burn(ctx context.Context) error {
	for range runtime.NumCPU() {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			return err
		}
		go cmd.Wait()
	}
	return nil
}
