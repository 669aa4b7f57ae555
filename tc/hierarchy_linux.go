package tc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hierarchy is where this machine keeps its CPU control groups.
type hierarchy struct {
	v2           bool
	cpu, account string // folders of the CPU controller and, in v1, of CPU accounting
}

// findHierarchy reads /proc/self/mountinfo. The CPU controller belongs to one
// version: v1 if it is mounted there, even beside a v2 mount ("hybrid").
func findHierarchy(mounts *bufio.Scanner) (hierarchy, error) {
	var h hierarchy
	var unified string
	for mounts.Scan() {
		before, after, ok := strings.Cut(mounts.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		point, controllers := left[4], strings.Split(right[2], ",")
		switch {
		case right[0] == "cgroup2":
			unified = point
		case right[0] == "cgroup" && h.cpu == "" && slices.Contains(controllers, "cpu"):
			h.cpu = point
		}
		if right[0] == "cgroup" && h.account == "" && slices.Contains(controllers, "cpuacct") {
			h.account = point
		}
	}
	if err := mounts.Err(); err != nil {
		return h, err
	}
	if h.cpu != "" {
		return h, nil
	}
	if unified == "" {
		return h, fmt.Errorf("no CPU control groups are mounted: %w", errors.ErrUnsupported)
	}
	controllers, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
	if err != nil {
		return h, err
	}
	if !slices.Contains(strings.Fields(string(controllers)), "cpu") {
		return h, fmt.Errorf("%s has the controllers %q but not cpu: %w",
			unified, strings.TrimSpace(string(controllers)), errors.ErrUnsupported)
	}
	return hierarchy{v2: true, cpu: unified}, nil
}

// limit writes a quota; 0 means none.
func (h hierarchy) limit(dir string, quota, period, burst time.Duration) error {
	amount := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	var values [][2]string
	if h.v2 {
		limit := "max"
		if quota > 0 {
			limit = amount(quota)
		}
		values = [][2]string{{"cpu.max.burst", "0"}, {"cpu.max", limit + " " + amount(period)}, {"cpu.max.burst", amount(burst)}}
	} else {
		limit := "-1"
		if quota > 0 {
			limit = amount(quota)
		}
		// Without a quota in between, some old and new values together would be
		// refused: a burst above the quota, a share above the parent's.
		values = [][2]string{
			{"cpu.cfs_burst_us", "0"}, {"cpu.cfs_quota_us", "-1"}, {"cpu.cfs_period_us", amount(period)},
			{"cpu.cfs_quota_us", limit}, {"cpu.cfs_burst_us", amount(burst)},
		}
	}
	for _, v := range values {
		err := write(dir, v[0], v[1])
		if errors.Is(err, os.ErrNotExist) && strings.Contains(v[0], "burst") {
			if burst == 0 {
				continue // what older kernels do anyway
			}
			return fmt.Errorf("%w (a burst needs Linux 5.14): %w", errors.ErrUnsupported, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stats reads the counters of the group whose folders are dirs.
func (h hierarchy) stats(dirs []string) (CPUStats, error) {
	data, err := os.ReadFile(filepath.Join(dirs[0], "cpu.stat"))
	if err != nil {
		return CPUStats{}, err
	}
	counts, err := parseStat(string(data))
	if err != nil {
		return CPUStats{}, err
	}
	stats := CPUStats{Periods: counts["nr_periods"], Throttled: counts["nr_throttled"]}
	if h.v2 {
		stats.ThrottledTime = time.Duration(counts["throttled_usec"]) * time.Microsecond
		stats.Usage = time.Duration(counts["usage_usec"]) * time.Microsecond
		return stats, nil
	}
	stats.ThrottledTime = time.Duration(counts["throttled_time"])
	if h.account == "" {
		return stats, nil
	}
	data, err = os.ReadFile(filepath.Join(dirs[len(dirs)-1], "cpuacct.usage"))
	if err != nil {
		return stats, err
	}
	usage, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	stats.Usage = time.Duration(usage)
	return stats, err
}

// parseStat reads lines of a name and a number.
func parseStat(text string) (map[string]uint64, error) {
	counts := map[string]uint64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("cpu.stat: found %q, expected a name and a number", strings.TrimSpace(line))
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cpu.stat: %s: %w", fields[0], err)
		}
		counts[fields[0]] = n
	}
	return counts, nil
}
