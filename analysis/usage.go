package analysis

import (
	"maps"
	"slices"

	"heartbed/experiments"
)

// replicaUsage is the CPU of one replica, percent; medians over the runs.
type replicaUsage struct {
	replica    string
	mean, peak float64
}

// replicaCPU gives the CPU of each replica of a cell, by name.
func (c Cell) replicaCPU() []replicaUsage {
	names := map[string]bool{}
	for _, r := range c.runs {
		for name := range r.CPU {
			names[name] = true
		}
	}
	var all []replicaUsage
	for _, name := range slices.Sorted(maps.Keys(names)) {
		of := func(part func(experiments.CPUUsage) float64) float64 {
			return *c.medianOf(func(r experiments.Result) *float64 {
				u, ok := r.CPU[name]
				if !ok {
					return nil
				}
				v := 100 * part(u)
				return &v
			})
		}
		all = append(all, replicaUsage{
			replica: name,
			mean:    of(func(u experiments.CPUUsage) float64 { return u.Mean }),
			peak:    of(func(u experiments.CPUUsage) float64 { return u.Max }),
		})
	}
	return all
}

// stageSeconds is the time of each stage of a controller step, the median
// over the runs of their medians.
func (c Cell) stageSeconds() map[string]float64 {
	values := map[string][]float64{}
	for _, r := range c.runs {
		for stage, v := range r.StepSeconds {
			values[stage] = append(values[stage], v)
		}
	}
	seconds := map[string]float64{}
	for stage, v := range values {
		seconds[stage] = estimate(v).Median
	}
	return seconds
}
