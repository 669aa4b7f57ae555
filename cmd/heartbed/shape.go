package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/tc"
)

// shapeOptions are the flags of shape.
type shapeOptions struct {
	ns, method string
	to         []string
	rate       string
	clear      bool
	link       tc.Link
	packets    float64
	seed       uint64
}

func shapeCommand() *cobra.Command {
	var o shapeOptions
	cmd := &cobra.Command{
		Use:   "shape",
		Short: "Add delay, jitter, loss or a rate between a network namespace and others",
		Long: `Shapes the traffic between a network namespace and the addresses given. The
round-trip time is what ping will show on top of what there is; this side adds
all of it, the other side needs nothing.

With netem the kernel goes on until --clear. Where it lacks netem, this program
holds the packets through NFQUEUE, and removes its rules when it is interrupted.
Only what heartbed made is ever removed.

Jitter, loss and rate act in one direction: with netem on what leaves the
namespace, with NFQUEUE on what arrives in it. For both, shape the other side
too, without --rtt.`,
		Example: `  heartbed shape --ns node1 --to 10.0.0.2 --rtt 20ms
  heartbed shape --ns node1 --to 10.0.0.2,10.0.0.3 --rtt 20ms --jitter 1ms --loss 0.01 --rate 100mbit
  heartbed shape --ns node1 --clear`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.clear {
				return tc.Clear(cmd.Context(), o.ns)
			}
			links, err := o.links()
			if err != nil {
				return fmt.Errorf("%w: %w", cli.ErrUsage, err)
			}
			return o.shape(cmd.Context(), links, cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ns, "ns", "", "network namespace, a name as of 'ip netns' or a path (default: the current one)")
	f.StringSliceVar(&o.to, "to", nil, "addresses of the other side")
	f.DurationVar(&o.link.RTT, "rtt", 0, "round-trip time to add")
	f.DurationVar(&o.link.Jitter, "jitter", 0, "standard deviation of a normal draw that is added to the delay where it is above 0; packets keep their order")
	f.Float64Var(&o.link.Loss, "loss", 0, "share of the packets lost, 0 to 1")
	f.StringVar(&o.rate, "rate", "", "limit such as 100mbit (bit, kbit, mbit, gbit per second)")
	f.StringVar(&o.method, "method", string(tc.Auto), "auto, netem or nfqueue")
	f.Float64Var(&o.packets, "packet-rate", tc.DefaultPacketRate, "packets per second that must not be dropped")
	f.Uint64Var(&o.seed, "seed", 1, "seed of loss and jitter")
	f.BoolVar(&o.clear, "clear", false, "remove what a shape left in the namespace")
	return cmd
}

// links reads the addresses and the link to them, naming all faults at once.
func (o shapeOptions) links() (map[netip.Addr]tc.Link, error) {
	var faults []error
	if len(o.to) == 0 {
		faults = append(faults, errors.New("--to is missing, expected an address"))
	}
	link := o.link
	var err error
	if link.RateBits, err = parseRate(o.rate); err != nil {
		faults = append(faults, err)
	}
	links := map[netip.Addr]tc.Link{}
	for _, text := range o.to {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("--to is %q, expected an IPv4 or IPv6 address", text))
			continue
		}
		links[addr] = link
	}
	return links, errors.Join(append(faults, tc.CheckLinks(links))...)
}

// parseRate reads bits per second; "" is 0, no limit.
func parseRate(text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, unit := text, 0.0
	for _, u := range []struct {
		suffix string
		bits   float64
	}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}} {
		if cut, ok := strings.CutSuffix(strings.ToLower(text), u.suffix); ok {
			number, unit = cut, u.bits
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || unit == 0 || !(n > 0) {
		return 0, fmt.Errorf("--rate is %q, expected a number and bit, kbit, mbit or gbit", text)
	}
	return n * unit, nil
}

// shape sets the links up, and where this program holds the packets, stays.
func (o shapeOptions) shape(ctx context.Context, links map[netip.Addr]tc.Link, status io.Writer) error {
	method := tc.Method(o.method)
	if method == tc.Auto {
		method = tc.Probe(ctx).Best()
	}
	s, err := tc.NewShaper(ctx, tc.Options{NS: o.ns, Method: method, Alone: true, PacketRate: o.packets, Seed: o.seed})
	if err != nil {
		return err
	}
	if err := s.Apply(ctx, links); err != nil {
		return errors.Join(err, s.Close())
	}
	if method == tc.Netem {
		fmt.Fprintln(status, "shaped by the kernel; undo with --clear")
		return nil
	}
	fmt.Fprintln(status, "shaping; Ctrl-C ends it and removes the rules")
	stats, err := watch(ctx, s)
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	fmt.Fprintf(status, "%d packets, %d lost as asked, %d beyond the rate, %d dropped, %d more than %v late (at most %v)\n",
		stats.Packets, stats.Lost, stats.Overflown, stats.Dropped, stats.Late, tc.LateAfter, stats.MaxLate)
	if stats.Dropped > 0 {
		return fmt.Errorf("%d packets were dropped because a queue was full: give a higher --packet-rate", stats.Dropped)
	}
	return nil
}

// watch waits for the end of ctx, or of the shaper by itself.
func watch(ctx context.Context, s tc.Shaper) (tc.Stats, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.Stats()
		case <-tick.C:
			if stats, err := s.Stats(); err != nil {
				return stats, err
			}
		}
	}
}
