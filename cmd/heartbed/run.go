package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
	"heartbed/testbed"
)

// runFlags are the flags of "run"; each has the name of its field.
type runFlags struct {
	scenario, file, backend, out string
	apps, policies               []string
	rps                          []float64
	reps, workers                int
	seed                         uint64
	duration, warmup             time.Duration
	quick, short, clean, alone   bool
	scale                        float64
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a scenario and write its report",
		Long: `Runs the trials of a scenario that the result folder does not hold yet, appends
their results and writes the report. A run that was interrupted goes on where
it stopped when the same command is given again. For another backend than the
simulator the same plan is simulated first, into the folder sim below, and the
report sets both side by side.`,
		Example: `  heartbed run --scenario A
  heartbed run --scenario LAN --app dag --policy heart,lata --rps 200,400 --reps 6
  heartbed run --file mine.yaml --out out/mine --quick
  heartbed run --scenario A --backend netns --short    # as root
  heartbed run --scenario A --backend cluster --short --context lab --image registry.lab/heartbed:1`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	f.scenarioFlags(flags)
	flags.StringVar(&f.backend, "backend", simulator, "where to run, see 'heartbed doctor'")
	flags.Float64SliceVar(&f.rps, "rps", nil, "requests a second, may be fractional (default each app's own)")
	flags.IntVar(&f.reps, "reps", 0, "repetitions, each with a seed of its own (default the scenario's)")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of all randomness (default the scenario's)")
	flags.DurationVar(&f.duration, "duration", 0, "measured time of a trial (default the scenario's)")
	flags.DurationVar(&f.warmup, "warmup", 0, "load before the measured time (default the scenario's)")
	flags.StringVar(&f.out, "out", "", "result folder (default out/<scenario>-<backend>)")
	flags.BoolVar(&f.quick, "quick", false, "at most 2 repetitions and a quarter of the measured time, for a first look")
	flags.BoolVar(&f.alone, "alone", false, "do not simulate the same plan beside a run on another backend")
	flags.BoolVar(&f.clean, "clean", false, "first remove what killed runs left on this machine, as 'heartbed down' does")
	backendFlags(flags)
	flags.IntVar(&f.workers, "workers", 0, "trials at the same time (default what the backend bears)")
	return cmd
}

// scenarioFlags are those that say what of which scenario is stood up.
func (f *runFlags) scenarioFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.scenario, "scenario", "", "scenario by name, see 'heartbed scenarios list'")
	flags.StringVar(&f.file, "file", "", "scenario of your own, a YAML file")
	flags.StringSliceVar(&f.apps, "app", nil, "applications of the scenario (default all)")
	flags.StringSliceVar(&f.policies, "policy", nil, "methods of the scenario or policies, or all (default the scenario's compare)")
	flags.Float64Var(&f.scale, "scale", 0, "divide CPU capacity and offered load by this, for a machine smaller than the scenario's (default the scenario's, else 1)")
	flags.BoolVar(&f.short, "short", false, "the scenario's short form, for backends that take real time (see 'heartbed scenarios show')")
}

func (f *runFlags) run(cmd *cobra.Command) (err error) {
	if f.workers < 0 {
		return fmt.Errorf("%w: --workers is %d, expected 1 or more", cli.ErrUsage, f.workers)
	}
	if err := checkBackendFlags(cmd, f.backend); err != nil {
		return err
	}
	job, err := f.job(cmd, f.backend)
	if err != nil {
		return err
	}
	if err := job.prepare(cmd.Context(), cmd.ErrOrStderr()); err != nil {
		return err
	}
	if job.place.close != nil {
		defer func() { err = errors.Join(err, job.place.close()) }()
	}
	if f.backend == kindBackend {
		inDocker.Options.Kubeconfig = filepath.Join(job.dir, "kubeconfig")
	}
	if f.backend != simulator && !f.alone {
		beside, err := f.job(cmd, simulator)
		if err != nil {
			return err
		}
		beside.dir = filepath.Join(job.dir, simulator)
		if complete, err := beside.measure(cmd.Context(), cmd.ErrOrStderr()); !complete {
			return err // a trial that fails there is in the report
		}
	}
	return job.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// job is a run whose input is known to be good.
type job struct {
	experiment *experiments.Experiment
	place      place
	dir        string
	workers    int
	clean      bool
}

// job reads and checks all that the flags name, for a backend.
func (f *runFlags) job(cmd *cobra.Command, backend string) (job, error) {
	if (f.scenario == "") == (f.file == "") {
		return job{}, fmt.Errorf("%w: give either --scenario or --file", cli.ErrUsage)
	}
	sel := experiments.Selection{Apps: f.apps, Methods: f.policies, RPS: f.rps, Repetitions: f.reps, Quick: f.quick, Short: f.short, Scale: f.scale}
	changed := cmd.Flags().Changed
	if changed("reps") && f.reps < 1 {
		return job{}, fmt.Errorf("%w: --reps is %d, expected 1 or more", cli.ErrUsage, f.reps)
	}
	if changed("seed") {
		sel.Seed = &f.seed
	}
	if changed("duration") {
		sel.Duration = &f.duration
	}
	if changed("warmup") {
		sel.Warmup = &f.warmup
	}
	place, placeErr := lookupBackend(backend)
	scenario, err := load(f.scenario, f.file)
	if err := errors.Join(placeErr, err); err != nil {
		return job{}, err
	}
	experiment, err := scenario.Experiment(sel, backend)
	if err != nil {
		return job{}, err
	}
	j := job{experiment: experiment, place: place, dir: f.out, workers: f.workers, clean: f.clean}
	if j.dir == "" {
		j.dir = filepath.Join("out", scenario.Name+"-"+backend)
	}
	if j.workers == 0 {
		j.workers = place.workers
	}
	return j, nil
}

// load reads the scenario of --scenario or --file.
func load(name, file string) (experiments.Scenario, error) {
	if file == "" {
		return experiments.Load(name)
	}
	return experiments.LoadFile(file)
}

// run measures what is missing, writes the report and says how it went.
func (j job) run(ctx context.Context, stdout, stderr io.Writer) error {
	complete, err := j.measure(ctx, stderr)
	if complete {
		err = errors.Join(err, report(j.dir, stdout))
	}
	return err
}

// prepare says whether the backend can run here and now, before anything is
// measured.
func (j job) prepare(ctx context.Context, stderr io.Writer) error {
	if err := j.place.Check(ctx); err != nil {
		return fmt.Errorf("backend %s: %w (see 'heartbed doctor')", j.experiment.Backend, err)
	}
	if j.clean {
		if err := down(ctx, stderr, "", j.experiment.Backend); err != nil {
			return err
		}
	}
	if j.place.clean != nil {
		if err := j.place.clean(""); err != nil {
			return fmt.Errorf("backend %s: %w", j.experiment.Backend, err)
		}
	}
	return j.fits(ctx)
}

// fits asks a backend that can say so whether it can play the plan of each app.
func (j job) fits(ctx context.Context) error {
	backend, can := j.place.Backend.(interface {
		Fits(context.Context, testbed.Plan) error
	})
	if !can {
		return nil
	}
	asked := map[string]bool{}
	for _, t := range j.experiment.Trials {
		if asked[t.App] {
			continue
		}
		asked[t.App] = true
		if err := backend.Fits(ctx, t.Plan); err != nil {
			return fmt.Errorf("backend %s: app %s: %w", j.experiment.Backend, t.App, err)
		}
	}
	return nil
}

// measure runs the trials. A run is complete when every trial has ended, even
// if some failed or a threshold was missed, which is the error then.
func (j job) measure(ctx context.Context, stderr io.Writer) (complete bool, err error) {
	p := newProgress(stderr, len(j.experiment.Trials), time.Now)
	outcome, err := j.experiment.Run(ctx, j.place, experiments.Options{
		Dir: j.dir, Workers: j.workers, Now: time.Now,
		Env:      experiments.ReadEnv(os.Args, time.Now()),
		OnResult: p.result,
	})
	if err == nil || len(outcome.Results) > 0 {
		p.end()
	}
	for _, w := range outcome.Warnings {
		fmt.Fprintf(stderr, "warning: %s\n", w)
	}
	if errors.Is(err, context.Canceled) {
		return false, fmt.Errorf("%w after %d of %d trials, which are kept in %s; the same command goes on from there",
			cli.ErrInterrupted, len(outcome.Results), len(j.experiment.Trials), j.dir)
	}
	if err != nil {
		return false, err
	}
	for _, m := range outcome.Missed {
		fmt.Fprintf(stderr, "threshold missed: %s\n", m)
	}
	if err := outcome.Failure(); err != nil {
		return true, err
	}
	if len(outcome.Missed) > 0 {
		return true, fmt.Errorf("%w: %d of the scenario's thresholds", cli.ErrThreshold, len(outcome.Missed))
	}
	return true, nil
}
