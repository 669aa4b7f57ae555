package tc

import (
	"errors"
	"fmt"
	"time"
)

// CPULimit bounds the CPU time of a control group as the kernel's CFS
// bandwidth control does.
type CPULimit struct {
	Cores  float64       // CPU seconds a second; 0 = no limit
	Period time.Duration // in which Cores x Period may be used, 1 ms to 1 s; 0 = 100 ms
	Burst  time.Duration // unused CPU time that may be saved up, at most Cores x Period
}

// CPUStats are the counters of a control group since it was made.
type CPUStats struct {
	Periods       uint64        // that ended with something to run
	Throttled     uint64        // periods in which the quota ran out
	ThrottledTime time.Duration // summed over the CPUs that had to wait
	Usage         time.Duration // CPU time used
}

// DefaultPeriod is the CFS period of a limit that names none, the kernel's own.
const DefaultPeriod = 100 * time.Millisecond

// quota checks the limit and gives what the kernel wants; quota is 0 without a limit.
func (l CPULimit) quota() (quota, period, burst time.Duration, err error) {
	period = l.Period
	if period == 0 {
		period = DefaultPeriod
	}
	var faults []error
	if !(l.Cores >= 0 && l.Cores <= 1e5) {
		faults = append(faults, fmt.Errorf("CPU limit: cores: found %v, expected 0 (no limit) or more", l.Cores))
	}
	if period < time.Millisecond || period > time.Second || period%time.Microsecond != 0 {
		faults = append(faults, fmt.Errorf("CPU limit: period: found %v, expected whole microseconds, 1ms to 1s", l.Period))
	}
	if len(faults) > 0 {
		return 0, 0, 0, errors.Join(faults...)
	}
	quota = time.Duration(l.Cores * float64(period)).Round(time.Microsecond)
	if l.Cores > 0 && quota < time.Millisecond {
		faults = append(faults, fmt.Errorf("CPU limit: %v cores of a period of %v are %v, expected at least 1ms", l.Cores, period, quota))
	}
	if l.Burst < 0 || l.Burst > quota || l.Burst%time.Microsecond != 0 {
		faults = append(faults, fmt.Errorf("CPU limit: burst: found %v, expected whole microseconds, 0 to the quota of %v", l.Burst, quota))
	}
	return quota, period, l.Burst, errors.Join(faults...)
}
