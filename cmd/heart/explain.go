package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"heartbed/heart"
)

// printer writes lines and keeps the first error.
type printer struct {
	out io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	_, err := fmt.Fprintf(p.out, format+"\n", args...)
	p.err = errors.Join(p.err, err)
}

// explain says why each share is what it is: what the load of a group was
// taken for, which links were left out and why.
func explain(out io.Writer, s heart.Step) error {
	p := &printer{out: out}
	for _, c := range s.Decision.Stages.ATPM {
		p.line("component %s: a group's share is its replicas over its CPU time a request", c.Component)
		for _, g := range c.Groups {
			p.line("  %d on %s: %s, smoothed %.3f ms: share %.1f %%", g.Replicas, g.Node, load(g), g.EWMA*1000, g.Share*100)
		}
	}
	for _, pair := range s.Decision.Stages.NTAM {
		p.line("calls %s to %s: %.2f ms mean round-trip time", pair.From, pair.To, pair.CostMs)
		if !pair.Feasible {
			p.line("  no flow over the links carries all requests")
		}
		for _, l := range pair.High {
			p.line("  %s -> %s: %s", l.From, l.To, fate(pair, l))
		}
	}
	return errors.Join(p.err, printTable(out, s.Decision.Table))
}

func load(g heart.GroupTrace) string {
	switch {
	case g.Load == nil:
		return "not observed"
	case g.Alpha == nil:
		return fmt.Sprintf("observed %.3f ms, not taken in", *g.Load*1000)
	}
	return fmt.Sprintf("observed %.3f ms, weight %.2f", *g.Load*1000, *g.Alpha)
}

// fate of a link that is among the slow ones.
func fate(pair heart.PairTrace, l heart.LinkName) string {
	switch {
	case slices.Contains(pair.Restored, l):
		return "slow, but needed to carry all requests"
	case slices.Contains(pair.Removed, l):
		return "slow, and the others carry all requests: removed"
	}
	return "slow, kept"
}

func printTable(out io.Writer, table heart.RoutingTable) error {
	p := &printer{out: out}
	for _, r := range table.Routes {
		sum := 0.0
		for _, s := range r.Shares {
			sum += float64(s.Weight)
		}
		p.line("route %s to %s, %s:", r.From, r.To, r.Balancer)
		for _, s := range r.Shares {
			p.line("  %5.1f %% %s", float64(s.Weight)/sum*100, s.To)
		}
	}
	return p.err
}
