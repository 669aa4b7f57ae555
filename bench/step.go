package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"heartbed/experiments"
)

// runStep prints the scheduling time of HEART and LATA at the sizes of the
// paper, then one HEART step at the largest size we care for.
func runStep(ctx context.Context, out io.Writer, o options) error {
	report, err := experiments.Scale(ctx, experiments.ScaleOptions{Policies: []string{"heart", "lata"}, Seed: o.seed}, time.Now)
	if err != nil {
		return err
	}
	if err := report.WriteText(out); err != nil {
		return err
	}
	large := experiments.ScaleOptions{
		Policies: []string{"heart"}, Replicas: []int{100_000}, Nodes: 1000, Components: 20, Steps: 3, Seed: o.seed,
	}
	report, err = experiments.Scale(ctx, large, time.Now)
	if err != nil {
		return err
	}
	if err := report.WriteText(out); err != nil {
		return err
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_, err = fmt.Fprintf(out, "memory taken from the system so far: %d MiB\n", m.Sys>>20)
	return err
}
