//go:build !linux

package service

// CPUQuota is 0, no limit: only Linux has cgroups.
func CPUQuota() (float64, error) { return 0, nil }
