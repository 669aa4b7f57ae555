package experiments

import "fmt"

// missed checks the scenario's thresholds against the median over the
// repetitions and describes each one that does not hold.
func (s Scenario) missed(results []Result) []string {
	var missed []string
	for _, t := range s.Thresholds {
		var sample []float64
		for _, r := range results {
			if r.Trial.App != t.App || r.Trial.Policy != t.Method || r.Trial.RPS != t.RPS || r.Verdict == Invalid {
				continue
			}
			if value, measured := t.value(r); measured {
				sample = append(sample, value)
			}
		}
		cell := fmt.Sprintf("%s %s at %v RPS: %s", t.App, t.Method, t.RPS, t.Metric)
		switch found := median(sample); {
		case len(sample) == 0:
			missed = append(missed, fmt.Sprintf("%s was not measured, expected at most %v", cell, t.Max))
		case found > t.Max:
			missed = append(missed, fmt.Sprintf("%s is %.4g (median of %d), expected at most %v", cell, found, len(sample), t.Max))
		}
	}
	return missed
}

// value of the threshold's metric in one result.
func (t Threshold) value(r Result) (value float64, measured bool) {
	switch t.Metric {
	case "errors":
		return float64(r.Errors), true
	case "cpuGapPp":
		if r.CPUGapPp == nil {
			return 0, false
		}
		return *r.CPUGapPp, true
	}
	if r.LatencyMs == nil {
		return 0, false
	}
	if t.Metric == "meanMs" {
		return r.LatencyMs.Mean, true
	}
	return r.LatencyMs.P99, true
}
