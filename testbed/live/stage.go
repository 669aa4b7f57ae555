package live

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Stage is one step of setting a run up, with the time it may take.
type Stage struct {
	Name  string
	Limit time.Duration
	Do    func(context.Context) error
}

// RunStages does one stage after the other and tells onStage, unless it is
// nil, of each that has ended. It gives the slowest with its time.
func RunStages(ctx context.Context, stages []Stage, onStage func(name string, took time.Duration)) (slowest string, longest time.Duration, err error) {
	for _, st := range stages {
		at := time.Now()
		if err := st.run(ctx); err != nil {
			return slowest, longest, err
		}
		took := time.Since(at)
		if onStage != nil {
			onStage(st.Name, took)
		}
		if took > longest {
			slowest, longest = st.Name, took
		}
	}
	return slowest, longest, nil
}

func (st Stage) run(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, st.Limit)
	defer cancel()
	err := st.Do(within)
	// A library may report the end of its context as an error of its own.
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		err = fmt.Errorf("gave up after %v: %w", st.Limit, err)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", st.Name, err)
	}
	return nil
}

// Pause waits, or returns why it must not.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
