package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What a cluster takes of the machine, measured on clusters of 1 + 5 and 1 + 3
// nodes with few pods, and rounded up.
const (
	inotifyPerNode, inotifyControl = 13, 15 // instances; a node and what the control plane adds
	diskPerNode                    = 450 << 20
	memoryPerNode, memoryControl   = 100 << 20, 700 << 20
)

// room is what a machine has left.
type room struct {
	inotifyLimit, inotifyUsed int
	memory, disk              int64 // bytes
	diskAt                    string
}

// lacks names all that a cluster of so many nodes, the control plane included,
// would not find; a node that finds too little dies in the middle of its boot.
func (r room) lacks(nodes int) error {
	var errs []error
	if need := inotifyPerNode*nodes + inotifyControl; r.inotifyLimit-r.inotifyUsed < need {
		errs = append(errs, fmt.Errorf("inotify instances: found %d of %d in use, %d nodes take %d more: sysctl -w fs.inotify.max_user_instances=1024", r.inotifyUsed, r.inotifyLimit, nodes, need))
	}
	if need := int64(memoryPerNode*nodes + memoryControl); r.memory < need {
		errs = append(errs, fmt.Errorf("memory: found %s free, %d nodes take %s: end other programs", size(r.memory), nodes, size(need)))
	}
	if need := int64(diskPerNode * nodes); r.disk < need {
		errs = append(errs, fmt.Errorf("disk: found %s left in %s, %d nodes take %s: free some ('docker system prune' removes what no container uses)", size(r.disk), r.diskAt, nodes, size(need)))
	}
	return errors.Join(errs...)
}

func size(bytes int64) string {
	return resource.NewQuantity(bytes>>20<<20, resource.BinarySI).String()
}

// checkRoom fails if the machine has no room for so many nodes.
func checkRoom(ctx context.Context, nodes int) error {
	var r room
	at, err := docker(ctx, "info", "--format", "{{.DockerRootDir}}")
	if err != nil {
		return err
	}
	var disk unix.Statfs_t
	var memory string
	if err := errors.Join(unix.Statfs(at, &disk), readInt("/proc/sys/fs/inotify/max_user_instances", &r.inotifyLimit)); err != nil {
		return fmt.Errorf("read what this machine has left: %w", err)
	}
	r.disk, r.diskAt = int64(disk.Bavail)*disk.Bsize, at
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("read the free memory: %w", err)
	}
	if _, memory, _ = strings.Cut(string(raw), "MemAvailable:"); memory == "" {
		return errors.New("/proc/meminfo: found no MemAvailable")
	}
	kB, err := strconv.ParseInt(strings.Fields(memory)[0], 10, 64)
	if err != nil {
		return fmt.Errorf("/proc/meminfo: MemAvailable: %w", err)
	}
	r.memory, r.inotifyUsed = kB<<10, inotifyUsed()
	return r.lacks(nodes)
}

func readInt(file string, to *int) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	*to, err = strconv.Atoi(strings.TrimSpace(string(raw)))
	return err
}

// inotifyUsed counts the instances of all processes: those of containers' root
// count against the same limit as ours. A process that ends meanwhile is skipped.
func inotifyUsed() (used int) {
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is good
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && to == "anon_inode:inotify" {
			used++
		}
	}
	return used
}
