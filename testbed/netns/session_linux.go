package netns

import (
	"context"
	"errors"
	"slices"

	"heartbed/testbed"
	"heartbed/testbed/live"
)

// session is a plan that stands in namespaces.
type session struct {
	live.Session
	options Options
	run     string
	journal *live.Journal

	folder         string
	program        string   // path of the workload program
	bridge, client string   // namespaces
	nodes          []string // namespaces, in the order of the plan's nodes
	processes      []*process
	closed         bool
}

// Run offers the plan's load in real time. It can run once. A process that
// ends meanwhile ends the run with an error that says how.
func (s *session) Run(ctx context.Context, step func(context.Context) error) (testbed.Measurement, error) {
	return s.Play(ctx, step, func(report func(error)) func() { return watch(s.processes, report) })
}

// Close ends all that the session started and undoes what it changed. Closing
// again does nothing.
func (s *session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, p := range slices.Backward(s.processes) {
		errs = append(errs, p.stop())
	}
	errs = append(errs, s.Session.Close(), s.journal.Close(context.Background(), remove))
	return errors.Join(errs...)
}
