package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/workloads/probe"
)

func probeCommand() *cobra.Command {
	var (
		c       probe.Config
		targets []string
		listen  string
		once    bool
	)
	cmd := &cobra.Command{
		Use:   "probe --source NODE --target NODE=ADDRESS[:PORT]...",
		Short: "Measure round-trip times to other nodes and export them",
		Long: `Probe measures the round-trip time from this node to each target, by ICMP
where that is permitted, else by a TCP connection to PORT. It exports
probe_icmp_duration_seconds and probe_success on /metrics until it gets
SIGTERM; with --once it prints one JSON object a target instead and fails if
a measurement failed.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := setTargets(&c, targets); err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			if once {
				return probeOnce(cmd, c)
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("export round-trip times: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "probe of %s: metrics on %v\n", c.Source, l.Addr())
			return probe.Export(cmd.Context(), l, c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Source, "source", "", "name of this node")
	f.StringArrayVar(&targets, "target", nil, "node to measure, NODE=ADDRESS[:PORT]; repeat")
	f.StringVar(&listen, "listen", ":9115", "address of /metrics")
	f.DurationVar(&c.Interval, "interval", 5*time.Second, "between two measurements of a target")
	f.IntVar(&c.Count, "count", 5, "probes a measurement, of which the median counts")
	f.DurationVar(&c.Timeout, "timeout", 2*time.Second, "for the probes of a measurement together")
	f.BoolVar(&once, "once", false, "measure once, print, end")
	return cmd
}

// setTargets fills in c's targets and checks the rest of it.
func setTargets(c *probe.Config, texts []string) error {
	var errs []error
	if c.Source == "" {
		errs = append(errs, errors.New("--source: found none, expected the name of this node"))
	}
	if len(texts) == 0 {
		errs = append(errs, errors.New("--target: found none, expected at least one"))
	}
	if c.Interval <= 0 || c.Count < 1 || c.Timeout <= 0 {
		errs = append(errs, errors.New("--interval, --count, --timeout: expected values above 0"))
	}
	for _, text := range texts {
		t, err := probe.ParseTarget(text)
		c.Targets = append(c.Targets, t)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// measured is a line of --once.
type measured struct {
	Source string       `json:"source"`
	Target string       `json:"target"`
	RTTMs  *float64     `json:"rttMs"` // null = failed
	Method probe.Method `json:"method"`
	Error  string       `json:"error,omitempty"`
}

func probeOnce(cmd *cobra.Command, c probe.Config) error {
	out := json.NewEncoder(cmd.OutOrStdout())
	var errs []error
	for _, t := range c.Targets {
		m, err := measureOnce(cmd.Context(), t, c)
		errs = append(errs, err, out.Encode(m))
	}
	return errors.Join(errs...)
}

func measureOnce(ctx context.Context, t probe.Target, c probe.Config) (measured, error) {
	rtt, method, err := probe.Measure(ctx, t, c.Options)
	m := measured{Source: c.Source, Target: t.Name, Method: method}
	if err != nil {
		m.Error = err.Error()
		return m, err
	}
	ms := float64(rtt) / 1e6
	m.RTTMs = &ms
	return m, nil
}
