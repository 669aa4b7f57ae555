package experiments

import (
	"fmt"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"heartbed/testbed"
	"heartbed/workloads"
)

// Limits of the verdict rules.
const (
	saturatedBelow  = 0.99 // achieved over offered rate
	lateAfterMs     = 10.0 // P99 of a generator's own delay
	littleTolerance = 0.02 // of the requests in flight
	meanTolerance   = 0.01 // histogram mean against the exact one
)

// judge says whether the numbers of a measurement may be used, and why not.
// INVALID outranks SATURATED: a broken measurement says nothing about the
// system under test. atOnce is how many requests the load can have in flight
// at its end without any having waited for a connection; 0 = it waits for the
// last answer.
func judge(m testbed.Measurement, atOnce int64) (Verdict, []string) {
	broken := slices.Clone(m.Faults)
	add := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	if m.Answered == 0 || m.Latency == nil || m.Latency.TotalCount() == 0 {
		return Invalid, append(broken, "no request was answered")
	}
	if m.OverRange > 0 {
		add("%d latencies are beyond the histogram's range", m.OverRange)
	}
	if late := lateness(m); late > lateAfterMs {
		add("the load generator was late: P99 %.1f ms after the due time, expected at most %v ms", late, lateAfterMs)
	}
	l := latency(m)
	if l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max || l.Mean > l.P99 {
		add("the percentiles are not in order: mean %v, P50 %v, P90 %v, P99 %v, P99.9 %v, max %v ms", l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max)
	}
	if histogram := m.Latency.Mean() / 1000; math.Abs(histogram-l.Mean) > meanTolerance*l.Mean {
		add("the mean of the histogram (%.3f ms) is not the exact mean (%.3f ms)", histogram, l.Mean)
	}
	// Cut off at the end is not unanswered: in a short run with connections in
	// step, their last requests alone are more than the rule allows.
	inFlight := float64(min(m.CutOff, atOnce)) / measuredSeconds(m)
	saturated := m.AchievedRPS+inFlight < saturatedBelow*m.OfferedRPS
	if math.Abs(m.OccupiedMean-m.OutstandingMean) > littleTolerance*m.OutstandingMean {
		add("Little's law does not hold: %.3f requests in flight, but rate x response time is %.3f", m.OutstandingMean, m.OccupiedMean)
	}
	switch {
	case len(broken) > 0:
		return Invalid, broken
	case saturated:
		return Saturated, []string{fmt.Sprintf("%.1f of %.1f requests a second were answered though the generator was on time", m.AchievedRPS, m.OfferedRPS)}
	}
	return Valid, nil
}

func measuredSeconds(m testbed.Measurement) float64 { return float64(m.Answered) / m.AchievedRPS }

// atOnce is the load's number of connections under the wrk2 schedule, which
// ends without waiting; an open one waits for its answers.
func atOnce(l workloads.Load) int64 {
	if l.Schedule != "wrk2" {
		return 0
	}
	return int64(l.Connections / l.Threads * l.Threads)
}

// lateness is the P99 of the generator's own delay, ms; 0 when it cannot be
// late.
func lateness(m testbed.Measurement) float64 {
	if m.Lateness == nil {
		return 0
	}
	return quantile(m.Lateness, 99)
}

func latency(m testbed.Measurement) *Latency {
	return &Latency{
		Mean: m.LatencyMeanUs / 1000,
		P50:  quantile(m.Latency, 50), P90: quantile(m.Latency, 90), P99: quantile(m.Latency, 99), P999: quantile(m.Latency, 99.9),
		Max: float64(m.Latency.Max()) / 1000,
	}
}

// quantile of a histogram of µs, in ms.
func quantile(h *hdrhistogram.Histogram, percent float64) float64 {
	return float64(h.ValueAtQuantile(percent)) / 1000
}
