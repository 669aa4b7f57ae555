package heart

import (
	"context"
	"fmt"
	"time"
)

// Observer measures one window. It returns an error rather than guess.
type Observer interface {
	Observe(ctx context.Context) (Observation, error)
}

// Router puts a routing table into force. Route is idempotent.
type Router interface {
	Route(ctx context.Context, table RoutingTable) error
}

// Controller joins an Observer, a Policy and a Router. Any error of a step
// leaves the table that is in force untouched (fail static).
type Controller struct {
	Observer Observer
	Policy   Policy
	Router   Router
	// Now takes the time of the stages; nil = stages are not timed. It never
	// influences a decision.
	Now func() time.Time
}

// Step is the outcome of one control cycle. Seconds holds the stages collect,
// the policy's own (for HEART predict, filter, flow) and apply.
type Step struct {
	Observation Observation
	Decision    Decision
	Seconds     map[string]float64
}

// Step runs one cycle: observe, allocate, validate, route.
func (c *Controller) Step(ctx context.Context) (Step, error) {
	m := &Meter{Now: c.Now}
	m.Start()
	var s Step
	var err error
	if s.Observation, err = c.Observer.Observe(ctx); err != nil {
		return s, fmt.Errorf("observe: %w", err)
	}
	m.Lap("collect")
	if s.Decision, err = c.Policy.Allocate(s.Observation, m); err != nil {
		return s, fmt.Errorf("allocate: %w", err)
	}
	if err = s.Decision.Table.Validate(s.Observation.Topology); err != nil {
		return s, fmt.Errorf("validate table: %w", err)
	}
	m.Lap("validate")
	if err = c.Router.Route(ctx, s.Decision.Table); err != nil {
		return s, fmt.Errorf("apply: %w", err)
	}
	m.Lap("apply")
	s.Seconds = m.Seconds
	return s, nil
}

// Run calls Step every period until ctx ends and hands each outcome to report.
// It is the only place of the package that waits; sessions of a testbed call
// Step themselves because they own time.
func (c *Controller) Run(ctx context.Context, period time.Duration, report func(Step, error)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		step, err := c.Step(ctx)
		report(step, err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
