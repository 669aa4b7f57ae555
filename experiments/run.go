package experiments

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"heartbed/testbed"
)

// Experiment is a scenario made ready to run on a backend.
type Experiment struct {
	Scenario Scenario // exactly what is run
	Backend  string   // name of the backend
	Trials   []Planned
	whole    Scenario // with the apps that this run leaves out
}

// Experiment applies the selection and lists the trials. It touches nothing;
// all faults come back at once.
func (s Scenario) Experiment(sel Selection, backend string) (*Experiment, error) {
	narrowed, err := s.Select(sel)
	if err != nil {
		return nil, err
	}
	if narrowed.Autoscale != nil && backend != simulator {
		return nil, Faults{{Field: "autoscale", Problem: fmt.Sprintf("found it on backend %s, expected %s: no other plays it yet", backend, simulator)}}
	}
	trials, err := narrowed.Trials(backend)
	if err != nil {
		return nil, err
	}
	return &Experiment{Scenario: narrowed, Backend: backend, Trials: trials, whole: s.retime(sel, new(Faults))}, nil
}

// simulator is the backend that scales replicas.
const simulator = "sim"

// Options of a run.
type Options struct {
	Dir     string // result folder; results in it are kept and not run again
	Workers int    // trials at the same time; 0 = 1
	// Now times the control steps; nil = they are not timed. It influences no
	// result.
	Now func() time.Time
	// Env is written to env.json.
	Env Env
	// OnResult is told of every result that was kept or measured, one at a
	// time.
	OnResult func(r Result, resumed bool)
}

// Outcome of a run.
type Outcome struct {
	Results  []Result // of the experiment's trials, in their order; those that ended
	Resumed  int      // of them, taken over from an earlier run
	Failed   int      // of them, ended with an error
	Missed   []string // thresholds of the scenario that were missed
	Warnings []string // about the folder, not about one result
}

// Failure sums up the trials that ended with an error; nil when none did.
func (o Outcome) Failure() error {
	if o.Failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d trials failed; their results say why", o.Failed, len(o.Results))
}

// Run runs the trials that the folder does not hold yet and appends their
// results in the order of the trials. A failed trial is a result; Run fails
// only when results cannot be kept or when ctx ends. Then what has been
// measured is kept, and the next Run goes on from there.
func (e *Experiment) Run(ctx context.Context, b testbed.Backend, o Options) (Outcome, error) {
	var out Outcome
	s, warnings, err := readStore(o.Dir)
	if err != nil {
		return out, err
	}
	out.Warnings = warnings
	if err := e.belong(s); err != nil {
		return out, err
	}
	if err := e.describe(s, o, &out); err != nil {
		return out, err
	}
	err = e.runMissing(ctx, b, o, s)
	err = errors.Join(err, s.close(e.Trials))
	for _, t := range e.Trials {
		if r, ended := s.results[t.ID]; ended {
			out.Results = append(out.Results, r)
			if r.Error != "" {
				out.Failed++
			}
		}
	}
	if err == nil {
		out.Missed = e.Scenario.missed(out.Results)
	}
	return out, err
}

// belong reports results in the folder that were measured with other settings
// than the scenario has now: one table must not mix the two.
func (e *Experiment) belong(s *store) error {
	var faults Faults
	for i, id := range s.ids {
		was := s.results[id].Trial
		if was.Backend == e.Backend && was.Scenario == e.Scenario.Name {
			if again, known := e.again(was); known && again.ID == id {
				continue
			}
		}
		faults = append(faults, Fault{File: filepath.Join(s.dir, resultsFile), Line: i + 1,
			Problem: fmt.Sprintf("found %s of scenario %s on %s, measured with other settings; expected results of the scenario as it is now: choose another --out", was.title(), was.Scenario, was.Backend)})
	}
	return faults.err()
}

// again plans a trial by its name with the settings of today.
func (e *Experiment) again(was Trial) (Planned, bool) {
	_, app := e.whole.Apps[was.App]
	_, method := e.whole.method(was.Policy)
	if !app || !method {
		return Planned{}, false
	}
	at, err := e.whole.place(was.App, was.Policy)
	if err != nil {
		return Planned{}, false
	}
	p, err := e.whole.plan(was, at)
	return p, err == nil
}

// describe opens the folder and writes what the results depend on.
func (e *Experiment) describe(s *store, o Options, out *Outcome) error {
	spec, err := e.Scenario.Marshal()
	if err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	path := filepath.Join(o.Dir, envFile)
	if before, known := readEnv(path); known && len(s.ids) > 0 && before.Commit != o.Env.Commit {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s: results so far were made by commit %q, those from now on by %q", path, before.Commit, o.Env.Commit))
	}
	for _, t := range e.Trials {
		if r, done := s.results[t.ID]; done {
			out.Resumed++
			o.report(r, true)
		}
	}
	return errors.Join(writeFile(filepath.Join(o.Dir, scenarioFile), spec), o.Env.write(path))
}

func (o Options) report(r Result, resumed bool) {
	if o.OnResult != nil {
		o.OnResult(r, resumed)
	}
}

// finished is what a worker hands over for a trial.
type finished struct {
	index  int
	result Result
	err    error
}

// runMissing deals the missing trials to the workers and appends what they
// bring. Results that are early wait for those before them, so that the file
// does not depend on which worker was faster.
func (e *Experiment) runMissing(ctx context.Context, b testbed.Backend, o Options, s *store) error {
	missing := slices.DeleteFunc(slices.Clone(e.Trials), func(t Planned) bool { _, done := s.lines[t.ID]; return done })
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := e.work(ctx, b, o, s, missing)
	early := map[int]Result{}
	var failure error
	next := 0
	for f := range ended {
		if f.err != nil {
			if failure == nil && ctx.Err() == nil {
				failure = f.err
			}
			stop() // the others notice and bring nothing more
			continue
		}
		early[f.index] = f.result
		for ; failure == nil; next++ {
			r, here := early[next]
			if !here {
				break
			}
			delete(early, next)
			if failure = s.append(r); failure != nil {
				stop()
				break
			}
			o.report(r, false)
		}
	}
	if failure != nil {
		return fmt.Errorf("%w; the results before are kept in %s, the same command goes on from there", failure, s.dir)
	}
	for i := range missing { // interrupted: keep what was waiting
		if r, here := early[i]; here {
			if err := s.append(r); err != nil {
				return err
			}
			o.report(r, false)
		}
	}
	return ctx.Err()
}

// work runs the trials on a number of workers and closes the channel when all
// of them are idle. After ctx ends they bring no more results.
func (e *Experiment) work(ctx context.Context, b testbed.Backend, o Options, s *store, trials []Planned) <-chan finished {
	ended := make(chan finished)
	queue := make(chan int)
	go func() {
		defer close(queue)
		for i := range trials {
			select {
			case queue <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var workers sync.WaitGroup
	for range max(1, o.Workers) {
		workers.Go(func() {
			for i := range queue {
				r, m, err := execute(ctx, b, trials[i], o.Now)
				if err == nil && m.Latency != nil {
					err = s.histogram(r.Trial.ID, m.Latency)
				}
				ended <- finished{i, r, err}
			}
		})
	}
	go func() {
		workers.Wait()
		close(ended)
	}()
	return ended
}
