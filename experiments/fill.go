package experiments

import (
	"fmt"
	"maps"
	"slices"

	"heartbed/testbed"
)

// fill turns a measurement into the measured fields of a result.
func (r *Result) fill(t Planned, m testbed.Measurement) {
	r.Verdict, r.Reasons = judge(m, atOnce(t.Plan.Load))
	r.OfferedRPS, r.AchievedRPS = m.OfferedRPS, m.AchievedRPS
	r.Requests = Requests{Offered: m.Offered, Answered: m.Answered, Failed: m.Failed, TimedOut: m.TimedOut, CutOff: m.CutOff, Unsent: m.Unsent}
	r.Errors = m.Failed + m.TimedOut + m.Unsent
	if m.Latency != nil && m.Latency.TotalCount() > 0 {
		r.LatencyMs = latency(m)
		if n := m.Latency.TotalCount(); n < 100 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%d requests were answered: P99 of fewer than 100 is one of the two highest latencies", n))
		}
	}
	if t.Plan.Autoscale == nil { // replicas that come and go share no run to be compared over
		r.fillCPU(t, m)
	}
	timing := t.Plan.Timing
	measured := (timing.Warmup + timing.Gap).Std()
	r.Shares = shares(m, measured, measured+timing.Duration.Std())
	r.SharesOverTime = sharesOverTime(t.Plan, m.Tables)
	for name, th := range m.Throttled {
		if r.Throttling == nil {
			r.Throttling = map[string]Throttling{}
		}
		r.Throttling[name] = Throttling{Periods: th.Periods, Throttled: th.Throttled, ThrottledSeconds: th.ThrottledTime.Seconds()}
	}
	r.Scaling = scaling(t.Plan, m.Scaling)
	r.StepErrors, r.Setup = counted(m.StepErrors), m.Setup
	r.Warnings = append(r.Warnings, counted(m.Warnings)...)
}

func (r *Result) fillCPU(t Planned, m testbed.Measurement) {
	r.CPU = cpuUsage(m.Windows)
	components := map[string][]string{}
	for _, replica := range t.Plan.Replicas {
		components[replica.Component] = append(components[replica.Component], replica.Name)
	}
	r.CPUGapPp, r.CPUGapWindowPp = cpuGaps(components, r.CPU, m.Windows)
}

// cpuUsage gives for each replica the mean over the windows in which it was
// observed, weighted by their length, and the largest window.
func cpuUsage(windows []testbed.CPUWindow) map[string]CPUUsage {
	usage := map[string]CPUUsage{}
	seconds := map[string]float64{}
	for _, w := range windows {
		length := (w.End - w.Start).Seconds()
		for name, busy := range w.Busy {
			u := usage[name]
			u.Mean += busy * length
			u.Max = max(u.Max, busy)
			usage[name] = u
			seconds[name] += length
		}
	}
	for name, u := range usage {
		u.Mean /= max(seconds[name], 1e-9)
		usage[name] = u
	}
	return usage
}

// cpuGaps gives the CPU imbalance in percentage points: of the run's means and
// as the median over the windows. A gap is the difference between the busiest
// and the idlest replica of one component, and the largest one among the
// components counts: replicas of different components do different work, so
// that comparing them would show the application and not the policy. The
// gateway is no part of it. nil = no component has two observed replicas.
func cpuGaps(components map[string][]string, usage map[string]CPUUsage, windows []testbed.CPUWindow) (run, window *float64) {
	means := make(map[string]float64, len(usage))
	for name, u := range usage {
		means[name] = u.Mean
	}
	run = largestGap(components, means)
	var gaps []float64
	for _, w := range windows {
		if gap := largestGap(components, w.Busy); gap != nil {
			gaps = append(gaps, *gap)
		}
	}
	if len(gaps) > 0 {
		m := median(gaps)
		window = &m
	}
	return run, window
}

func largestGap(components map[string][]string, busy map[string]float64) *float64 {
	var largest *float64
	for _, component := range slices.Sorted(maps.Keys(components)) {
		var observed []float64
		for _, name := range components[component] {
			if b, known := busy[name]; known {
				observed = append(observed, b)
			}
		}
		if len(observed) < 2 {
			continue
		}
		if gap := 100 * (slices.Max(observed) - slices.Min(observed)); largest == nil || gap > *largest {
			largest = &gap
		}
	}
	return largest
}
