package experiments

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"heartbed/heart"
	"heartbed/heart/policy"
	"heartbed/testbed"
)

// contractStages are the stages of stepSeconds in the order of a step; a
// policy that has no such stage leaves it out. "total" is the whole step.
var contractStages = []string{"collect", "predict", "filter", "flow", "apply"}

// execute runs one trial on a backend. The measurement is the zero value when
// the result has an Error. Only the end of ctx makes it return an error: then
// there is no result.
func execute(ctx context.Context, b testbed.Backend, t Planned, now func() time.Time) (Result, testbed.Measurement, error) {
	r := Result{Trial: t.Trial, Warnings: slices.Clone(t.Warnings)}
	steps := &stepLog{seconds: map[string][]float64{}}
	m, err := measure(ctx, b, t, now, steps)
	if ctx.Err() != nil {
		return r, m, ctx.Err()
	}
	r.Steps, r.StepSeconds = steps.count, steps.medians()
	r.Warnings = append(r.Warnings, counted(steps.warnings)...)
	if err != nil {
		r.Verdict, r.Error = Invalid, err.Error()
		return r, testbed.Measurement{}, nil
	}
	r.fill(t, m)
	return r, m, nil
}

// Stand stands the plan of a trial up on a backend and puts the first table of
// its policy into force; no load is offered. The caller closes the session.
func Stand(ctx context.Context, b testbed.Backend, t Planned, now func() time.Time) (testbed.Session, *heart.Controller, error) {
	p, err := policy.New(t.Method.Policy, t.Method.Params)
	if err != nil {
		return nil, nil, err
	}
	session, err := b.Start(ctx, t.Plan)
	if err != nil {
		return nil, nil, fmt.Errorf("start: %w", err)
	}
	controller := &heart.Controller{Observer: session, Policy: p, Router: session, Now: now}
	// Before the load nothing can be observed; the first table must not depend
	// on it, and there is none to fall back on.
	if _, err := controller.Step(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("first step: %w", err), closeSession(session))
	}
	return session, controller, nil
}

func closeSession(s testbed.Session) error {
	if err := s.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// measure stands the plan up and runs the load.
func measure(ctx context.Context, b testbed.Backend, t Planned, now func() time.Time, log *stepLog) (m testbed.Measurement, err error) {
	session, controller, err := Stand(ctx, b, t, now)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, closeSession(session)) }()
	m, err = session.Run(ctx, func(ctx context.Context) error {
		step, err := controller.Step(ctx)
		log.add(step)
		return err
	})
	if err != nil {
		return m, fmt.Errorf("run: %w", err)
	}
	return m, nil
}

// stepLog keeps what the steps under load took and warned of.
type stepLog struct {
	count    int
	seconds  map[string][]float64
	warnings []string
}

func (l *stepLog) add(s heart.Step) {
	l.count++
	l.warnings = append(l.warnings, s.Observation.Warnings...)
	l.warnings = append(l.warnings, s.Decision.Warnings...)
	if s.Seconds == nil { // the step failed or is not timed
		return
	}
	total := 0.0
	for _, stage := range slices.Sorted(maps.Keys(s.Seconds)) {
		total += s.Seconds[stage]
	}
	for _, stage := range contractStages {
		if sec, timed := s.Seconds[stage]; timed {
			l.seconds[stage] = append(l.seconds[stage], sec)
		}
	}
	l.seconds["total"] = append(l.seconds["total"], total)
}

func (l *stepLog) medians() map[string]float64 {
	if len(l.seconds) == 0 {
		return nil
	}
	medians := map[string]float64{}
	for stage, samples := range l.seconds {
		medians[stage] = median(samples)
	}
	return medians
}

// median of a sample that is not empty; NaN for an empty one.
func median(sample []float64) float64 {
	n := len(sample)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(sample))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// counted lists each text once in the order of first appearance and says how
// often it came when that was more than once.
func counted(texts []string) []string {
	times := map[string]int{}
	var order []string
	for _, text := range texts {
		if times[text]++; times[text] == 1 {
			order = append(order, text)
		}
	}
	for i, text := range order {
		if n := times[text]; n > 1 {
			order[i] = fmt.Sprintf("%s (%d times)", text, n)
		}
	}
	return order
}
