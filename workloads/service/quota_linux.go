package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CPUQuota is the CPU quota in cores that binds this process, 0 if none does:
// the least of its cgroup and all above it. The Go runtime reads less
// (golang/go#81180), yet on a kind node with a limit the pod's own cgroup has
// none and the node's binds.
//
// A cgroup namespace hides what is above it; whoever starts a process in one
// has to set GOMAXPROCS.
func CPUQuota() (float64, error) {
	quota, err := bindingQuota(os.DirFS("/"))
	if err != nil {
		return 0, fmt.Errorf("read cpu quota: %w", err)
	}
	return quota, nil
}

// bindingQuota is CPUQuota under the given root directory.
func bindingQuota(root fs.FS) (float64, error) {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a kernel without cgroups
	}
	if err != nil {
		return 0, err
	}
	mounts, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return 0, err
	}
	least := 0.0
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 has no controllers
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || f[1] != "" && !slices.Contains(strings.Split(f[1], ","), "cpu") {
			continue
		}
		mount, below, mounted := cpuMount(string(mounts), f[1] == "", f[2])
		for mounted {
			quota, err := quotaOf(root, strings.TrimPrefix(path.Join(mount, below), "/"))
			if err != nil {
				return 0, err
			}
			if quota > 0 && (least == 0 || quota < least) {
				least = quota
			}
			if below == "/" {
				break
			}
			below = path.Dir(below)
		}
	}
	return least, nil
}

// cpuMount finds where the hierarchy of a cgroup is mounted (version 2, or
// the CPU controller of version 1), and the cgroup's path below that.
func cpuMount(mounts string, v2 bool, group string) (mount, below string, mounted bool) {
	for line := range strings.Lines(mounts) {
		// id parent device root mountpoint options... - type source options
		f := strings.Fields(line)
		sep := slices.Index(f, "-")
		if sep < 5 || len(f) < sep+4 {
			continue
		}
		kind, options := f[sep+1], strings.Split(f[sep+3], ",")
		if v2 && kind != "cgroup2" || !v2 && (kind != "cgroup" || !slices.Contains(options, "cpu")) {
			continue
		}
		below, inside := strings.CutPrefix(group, strings.TrimSuffix(f[3], "/"))
		if inside && (below == "" || below[0] == '/') {
			return f[4], path.Join("/", below), true
		}
	}
	return "", "", false
}

// quotaOf reads one cgroup's quota in cores, 0 if it has none.
func quotaOf(root fs.FS, dir string) (float64, error) {
	if raw, err := fs.ReadFile(root, path.Join(dir, "cpu.max")); err == nil {
		return parseQuota(path.Join(dir, "cpu.max"), string(raw))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	quota, err := fs.ReadFile(root, path.Join(dir, "cpu.cfs_quota_us"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the root of version 2 has neither
	}
	if err != nil {
		return 0, err
	}
	period, err := fs.ReadFile(root, path.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, err
	}
	return parseQuota(path.Join(dir, "cpu.cfs_quota_us"), string(quota)+" "+string(period))
}

// parseQuota reads "quota period", both in us; a quota of max or -1 is none.
func parseQuota(file, text string) (float64, error) {
	f := strings.Fields(text)
	if len(f) == 2 && (f[0] == "max" || f[0] == "-1") {
		return 0, nil
	}
	if len(f) == 2 {
		quota, err := strconv.ParseUint(f[0], 10, 63)
		period, err2 := strconv.ParseUint(f[1], 10, 63)
		if err == nil && err2 == nil && quota > 0 && period > 0 {
			return float64(quota) / float64(period), nil
		}
	}
	return 0, fmt.Errorf("%s: found %q, expected a quota and a period in us", file, text)
}
