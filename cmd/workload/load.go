package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/workloads"
	"heartbed/workloads/loadgen"
)

// loadFlags is the command line of load.
type loadFlags struct {
	config                  loadgen.Config
	schedule                string
	stagger, timeout        time.Duration
	hlog                    string
	latency, asJSON, silent bool
}

func loadCommand() *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load [flags] URL",
		Short: "Offer load to a service and measure from the due times",
		Long: `Load sends requests to URL (http://HOST[:PORT]/PATH, or grpc://HOST:PORT for a
service of a testbed) and prints what wrk2 prints, then where every request
went. Latency counts from the moment a request was due.

Schedules:
  open    requests leave when due, whatever is outstanding; --connections
          limits how many can be, and the wait for a free one is latency
  wrk2    each connection has one request outstanding and its own pace; note
          that the result depends on the number of connections
  closed  each connection sends as soon as it is free: the highest rate, and
          no honest latency

Exit codes: 0 done, 1 no request was answered or something failed, 2 bad
input, 130 interrupted (the results so far are printed).`,
		Example: "  workload load -R 200 -d 30s http://127.0.0.1:8080/\n" +
			"  workload load --schedule wrk2 -t 4 -c 10 -R 50 -d 3m --drop 10s --latency http://127.0.0.1:8080/",
		Args: cli.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.config.Target = args[0]
			return f.run(cmd)
		},
	}
	flags, c := cmd.Flags(), &f.config
	flags.Float64VarP(&c.RPS, "rate", "R", 0, "requests a second, may be a fraction")
	flags.StringVar(&f.schedule, "schedule", "open", "open, wrk2 or closed")
	flags.StringVar(&c.Load.Arrivals, "arrivals", "", "of the open schedule: even (default) or poisson")
	flags.IntVarP(&c.Load.Threads, "threads", "t", 0, "of the wrk2 schedule: connections are dealt to them (default 2)")
	flags.IntVarP(&c.Load.Connections, "connections", "c", 0, "open: the limit (default none); wrk2 and closed: how many (default 10)")
	flags.DurationVar(&f.stagger, "stagger", 5*time.Millisecond, "of the wrk2 schedule: between the starts of two connections of a thread")
	flags.DurationVarP(&c.Duration, "duration", "d", 30*time.Second, "time of the schedule")
	flags.DurationVar(&c.Drop, "drop", 0, "first part of it that is not measured (wrk2: 10s)")
	flags.DurationVar(&f.timeout, "timeout", 0, "give a request up that long after its due time (default never)")
	flags.Uint64Var(&c.Seed, "seed", 1, "of Poisson arrivals and of the draws of requests")
	flags.DurationVar(&c.Spin, "spin", loadgen.DefaultSpin, "poll the clock that long before a due time; negative = never")
	flags.BoolVar(&c.Draws, "draws", false, "send the seed of its draws with each HTTP request (X-Draw)")
	flags.StringVar(&c.Caller, "caller", "", "name of the caller, for gRPC")
	flags.BoolVar(&f.latency, "latency", false, "print the distribution of latencies")
	flags.StringVar(&f.hlog, "hlog", "", "write the latencies to this HdrHistogram log")
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")
	flags.BoolVarP(&f.silent, "quiet", "q", false, "print no progress")
	return cmd
}

// settle fills in what a flag leaves open.
func (f *loadFlags) settle() error {
	f.config.Run = workloads.MeasuredRun(false) // as of a trial without warm-up
	l := &f.config.Load
	l.Schedule, l.Timeout = f.schedule, workloads.Duration(f.timeout)
	switch f.schedule {
	case "open":
		l.Arrivals = cmp.Or(l.Arrivals, "even")
	case "wrk2":
		l.Threads, l.Connections, l.Stagger = cmp.Or(l.Threads, 2), cmp.Or(l.Connections, 10), workloads.Duration(f.stagger)
	case "closed":
		f.config.ClosedLoop, l.Connections = true, cmp.Or(l.Connections, 10)
	default:
		return fmt.Errorf("%w: schedule: found %q, expected open, wrk2 or closed", cli.ErrUsage, f.schedule)
	}
	if f.stagger < 0 {
		return fmt.Errorf("%w: stagger: found %v, expected 0s or more", cli.ErrUsage, f.stagger)
	}
	return nil
}

func (f *loadFlags) run(cmd *cobra.Command) error {
	if err := f.settle(); err != nil {
		return err
	}
	show := newLoadProgress(cmd.ErrOrStderr())
	if !f.silent {
		f.config.OnProgress, f.config.ProgressEvery = show.say, show.every()
	}
	r, err := loadgen.Run(cmd.Context(), f.config)
	show.end()
	if errors.Is(err, loadgen.ErrConfig) {
		return fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if r.Latency == nil { // it did not start
		return err
	}
	if cmd.Context().Err() != nil {
		err = fmt.Errorf("interrupted after %v of %v: %w", r.Duration.Round(time.Millisecond), f.config.Duration, err)
	} else if err == nil && r.Answered == 0 && r.Offered > 0 {
		err = fmt.Errorf("none of %d requests was answered", r.Offered)
	}
	return errors.Join(f.print(cmd.OutOrStdout(), r), f.save(r), err)
}

func (f *loadFlags) print(w io.Writer, r loadgen.Result) error {
	if f.asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(loadSummary(r))
	}
	if err := r.WriteWrk2(w, f.config, f.latency); err != nil {
		return err
	}
	fmt.Fprintf(w, "Requests due in the measured %v: %d = %d answered + %d failed + %d timed out + %d cut off + %d unsent\n",
		r.Measured.Round(time.Millisecond), r.Offered, r.Answered, r.Failed, r.TimedOut, r.CutOff, r.Unsent)
	if r.OverRange > 0 {
		fmt.Fprintf(w, "Beyond the histogram's hour: %d\n", r.OverRange)
	}
	for _, fault := range r.Faults {
		fmt.Fprintf(w, "  %s\n", fault)
	}
	if late := r.Lateness; late.TotalCount() > 0 {
		fmt.Fprintf(w, "Own delay of the generator: P50 %d us, P99 %d us, highest %d us\n",
			late.ValueAtQuantile(50), late.ValueAtQuantile(99), late.Max())
	}
	return nil
}

func (f *loadFlags) save(r loadgen.Result) error {
	if f.hlog == "" {
		return nil
	}
	var log bytes.Buffer
	if err := r.WriteHistogram(&log); err != nil {
		return err
	}
	return os.WriteFile(f.hlog, log.Bytes(), 0o644)
}

// summary is a result in JSON; times in ms.
type summary struct {
	Offered         int64          `json:"offered"`
	Answered        int64          `json:"answered"`
	Failed          int64          `json:"failed"`
	TimedOut        int64          `json:"timedOut"`
	CutOff          int64          `json:"cutOff"`
	Unsent          int64          `json:"unsent"`
	OverRange       int64          `json:"overRange"`
	OfferedRPS      float64        `json:"offeredRps"`
	AchievedRPS     float64        `json:"achievedRps"`
	OutstandingMean float64        `json:"outstandingMean"`
	Connections     int            `json:"connections"`
	LatencyMs       *distribution  `json:"latencyMs,omitempty"`
	LatenessMs      *distribution  `json:"latenessMs,omitempty"`
	Errors          loadgen.Errors `json:"errors"`
	Faults          []string       `json:"faults,omitempty"`
}

type distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func loadSummary(r loadgen.Result) summary {
	s := summary{
		Offered: r.Offered, Answered: r.Answered, Failed: r.Failed, TimedOut: r.TimedOut, CutOff: r.CutOff, Unsent: r.Unsent,
		OverRange: r.OverRange, OfferedRPS: r.OfferedRPS, AchievedRPS: r.AchievedRPS, OutstandingMean: r.OutstandingMean,
		Connections: r.Connections, Errors: r.Errors, Faults: r.Faults,
		LatencyMs: distributionOf(r.Latency), LatenessMs: distributionOf(r.Lateness),
	}
	if s.LatencyMs != nil {
		s.LatencyMs.Mean = r.LatencyMeanUs / 1000
	}
	return s
}

// distributionOf a histogram of µs; nil if it is empty.
func distributionOf(h *hdrhistogram.Histogram) *distribution {
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(percent float64) float64 { return float64(h.ValueAtQuantile(percent)) / 1000 }
	return &distribution{Mean: h.Mean() / 1000, P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1000}
}
