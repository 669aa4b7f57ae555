package service

import (
	"context"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"

	"heartbed/workloads"
)

// program is what the replica does for each request. The gateway is component
// 0 of the call tree, as in the simulator, so that the draws agree.
type program struct {
	dist      workloads.Distribution
	slowness  float64
	inflation inflation
	hold      bool
	station   *station
	steps     []step
}

// step is a workloads.Step made ready: either burn or callees is set.
type step struct {
	burn        float64 // mean CPU time at slowness 1, ns
	callees     []*callee
	odds        []float64 // one of callees is called; nil = all
	probability float64
}

// compile prepares the steps of the config's component.
func compile(cfg Config, st *station, callees map[string]*callee) *program {
	p := &program{
		dist: cfg.App.ServiceTime, slowness: cfg.Slowness, station: st,
		hold: cfg.App.Server.HoldSlot && st != nil, // a gateway has no slots
	}
	for _, s := range stepsOf(cfg) {
		c := step{burn: s.CPUMs * 1e6, probability: s.Probability}
		names := s.Call
		if len(s.Choose) > 0 {
			names = workloads.SortedNames(s.Choose)
		}
		for _, name := range names {
			c.callees = append(c.callees, callees[name])
			if len(s.Choose) > 0 {
				c.odds = append(c.odds, s.Choose[name])
			}
		}
		p.steps = append(p.steps, c)
	}
	return p
}

// stepsOf gives the steps of the config's component; a gateway passes each
// request on to the entry.
func stepsOf(cfg Config) []workloads.Step {
	if cfg.Gateway {
		return []workloads.Step{{Call: []string{cfg.App.Entry}}}
	}
	for _, c := range cfg.App.Components {
		if c.Name == cfg.Component {
			return c.Steps
		}
	}
	return nil // excluded by Config.Validate
}

// do works off one request. Errors carry a gRPC status.
func (p *program) do(ctx context.Context, draws workloads.Draws) error {
	if p.hold {
		if err := p.station.enter(ctx); err != nil {
			return status.FromContextError(err).Err()
		}
		defer p.station.leave()
	}
	sampler := workloads.NewSampler(p.dist)
	for i, s := range p.steps {
		if s.burn > 0 {
			ns := s.burn * p.slowness * sampler.Factor(&draws)
			if err := p.burn(ctx, int64(ns)); err != nil {
				return status.FromContextError(err).Err()
			}
			continue
		}
		if !sampler.Happens(&draws, s.probability) {
			continue
		}
		callees := s.callees
		if s.odds != nil {
			k := sampler.Choose(&draws, s.odds)
			callees = callees[k : k+1]
		}
		if err := callAll(ctx, callees, draws, i); err != nil {
			return err
		}
	}
	return nil
}

// burn takes CPU time, holding a slot meanwhile. The inflation is that of the
// moment it begins: steps are short against any burst, waits may not be.
func (p *program) burn(ctx context.Context, ns int64) error {
	if !p.hold {
		if err := p.station.enter(ctx); err != nil {
			return err
		}
		defer p.station.leave()
	}
	return p.station.burn(ctx, int64(float64(ns)*p.inflation.factor()))
}

// callAll makes the calls of step i at the same time and waits for the last
// answer. The first failure ends the others and is the request's.
func callAll(ctx context.Context, callees []*callee, draws workloads.Draws, i int) error {
	if len(callees) == 1 { // the usual case needs no goroutine
		return callees[0].call(ctx, draws.Child(callees[0].index, i, 0))
	}
	g, ctx := errgroup.WithContext(ctx)
	for n, c := range callees {
		g.Go(func() error { return c.call(ctx, draws.Child(c.index, i, n)) })
	}
	return g.Wait()
}
