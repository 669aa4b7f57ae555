package tc

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is a CPU control group of cgroup v1 or v2. A group inside another is
// bound by both limits.
type Group struct {
	path string
	h    hierarchy
}

// NewGroup makes the group at path, such as "heartbed/run1/node2", below the
// root of the CPU hierarchy, with the parents it lacks, which get no limit. It
// wraps fs.ErrExist if there is such a group, and errors.ErrUnsupported where
// there is no CPU controller. Under cgroup v1 the kernel refuses a group a
// larger share than its parent has; under v2 the parent's limit just binds.
func NewGroup(path string, limit CPULimit) (*Group, error) {
	if _, _, _, err := limit.quota(); err != nil {
		return nil, err
	}
	g, err := findGroup(path)
	if err != nil {
		return nil, err
	}
	if err := g.create(); err != nil {
		return nil, fmt.Errorf("make control group %s: %w", path, err)
	}
	if err := g.Limit(limit); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// OpenGroup gives a group that exists, such as one left by a killed process;
// without it, the error wraps fs.ErrNotExist.
func OpenGroup(path string) (*Group, error) {
	g, err := findGroup(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(g.dirs()[0]); err != nil {
		return nil, fmt.Errorf("control group %s: %w", path, err)
	}
	return g, nil
}

func findGroup(path string) (*Group, error) {
	if !filepath.IsLocal(path) || filepath.Clean(path) == "." {
		return nil, fmt.Errorf("control group %q: expected a relative path such as heartbed/node1", path)
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer mounts.Close()
	h, err := findHierarchy(bufio.NewScanner(mounts))
	if err != nil {
		return nil, err
	}
	return &Group{filepath.Clean(path), h}, nil
}

// dirs lists the group's folders: one, or two where v1 counts CPU time elsewhere.
func (g *Group) dirs() []string {
	dirs := []string{filepath.Join(g.h.cpu, g.path)}
	if g.h.account != "" && g.h.account != g.h.cpu {
		dirs = append(dirs, filepath.Join(g.h.account, g.path))
	}
	return dirs
}

func (g *Group) create() error {
	if g.h.v2 {
		if err := g.delegate(); err != nil {
			return err
		}
	}
	for i, dir := range g.dirs() {
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && (i == 0 || !errors.Is(err, fs.ErrExist)) {
			return err
		}
	}
	return nil
}

// delegate turns the CPU controller of v2 on in all groups above this one: a
// child has the controllers that its parent hands down.
func (g *Group) delegate() error {
	dir := g.h.cpu
	for _, part := range strings.Split(g.path, "/") {
		if err := write(dir, "cgroup.subtree_control", "+cpu"); err != nil {
			return err
		}
		if dir = filepath.Join(dir, part); dir == g.dirs()[0] {
			break
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Limit replaces the group's limit.
func (g *Group) Limit(limit CPULimit) error {
	quota, period, burst, err := limit.quota()
	if err != nil {
		return err
	}
	dir := g.dirs()[0]
	if err := g.h.limit(dir, quota, period, burst); err != nil {
		return fmt.Errorf("limit control group %s to %v of %v, burst %v: %w", g.path, quota, period, burst, err)
	}
	return nil
}

// Add moves a process with all its threads into the group.
func (g *Group) Add(pid int) error {
	for _, dir := range g.dirs() {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d: %w", pid, err)
		}
	}
	return nil
}

// Processes lists those in the group itself, not in groups inside it.
func (g *Group) Processes() ([]int, error) {
	data, err := os.ReadFile(filepath.Join(g.dirs()[0], "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("control group %s: process %q: %w", g.path, field, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Stats reads the counters.
func (g *Group) Stats() (CPUStats, error) {
	stats, err := g.h.stats(g.dirs())
	if err != nil {
		return CPUStats{}, fmt.Errorf("counters of control group %s: %w", g.path, err)
	}
	return stats, nil
}

// removeWithin is how long the kernel may take to forget a process that ended.
const removeWithin = 2 * time.Second

// Remove removes the group and the groups inside it. It fails while a process
// is in one of them, and does nothing if the group is gone.
func (g *Group) Remove() error {
	var faults []error
	for _, dir := range g.dirs() {
		if err := removeTree(dir); err != nil {
			faults = append(faults, fmt.Errorf("remove control group: %w", err))
		}
	}
	return errors.Join(faults...)
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for deadline := time.Now().Add(removeWithin); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

func write(dir, file, value string) error {
	// No O_CREATE: a control group has the files the kernel gave it.
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
