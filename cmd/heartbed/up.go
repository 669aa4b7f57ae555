package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"heartbed/cmd/internal/cli"
	"heartbed/experiments"
)

func upCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Stand a scenario up on kind, without load, until Ctrl-C",
		Long: `Makes the kind cluster of a scenario with the replicas of its first method, and
puts that method's first routing table into force, as before a run. The cluster
stands, for kubectl or for a controller of yours, until Ctrl-C takes it down.`,
		Example: `  heartbed up --scenario A --app pair --short
  heartbed up --file mine.yaml --policy lata --out out/up`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.up(cmd) },
	}
	flags := cmd.Flags()
	f.scenarioFlags(flags)
	flags.StringVar(&f.out, "out", "", "folder of the kubeconfig (default out/<scenario>-kind)")
	flags.BoolVar(&f.clean, "clean", false, "first remove what killed runs left on this machine, as 'heartbed down' does")
	return cmd
}

func (f *runFlags) up(cmd *cobra.Command) (err error) {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	job, err := f.job(cmd, kindBackend)
	if err != nil {
		return err
	}
	if err := job.prepare(ctx, cmd.ErrOrStderr()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.place.close()) }()
	trial := job.experiment.Trials[0]
	inDocker.Options.Kubeconfig = filepath.Join(job.dir, "kubeconfig")
	inDocker.Options.OnStage = func(stage string, took time.Duration) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%-32s %5.1f s\n", stage, took.Seconds())
	}
	session, _, err := experiments.Stand(ctx, job.place, trial, time.Now)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s with %s stands: kubectl --kubeconfig %s -n heartbed get pods\nCtrl-C takes it down\n",
		trial.App, trial.Policy, inDocker.Options.Kubeconfig)
	<-ctx.Done()
	return session.Close()
}
