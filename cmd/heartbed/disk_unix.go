//go:build linux || darwin || freebsd

package main

import "syscall"

// freeMB gives the free space of the file system of a folder, 0 when it
// cannot be told.
func freeMB(dir string) int {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0
	}
	return int(uint64(fs.Bavail) * uint64(fs.Bsize) / 1e6)
}
