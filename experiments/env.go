package experiments

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Env is where results come from: what a reader needs to judge whether two
// folders are comparable. A field that could not be read is empty.
type Env struct {
	Started  time.Time `json:"started"`
	Command  []string  `json:"command"`
	Commit   string    `json:"commit"` // of heartbed
	Dirty    bool      `json:"dirty"`  // the checkout had changes that are in no commit
	Go       string    `json:"go"`
	OS       string    `json:"os"`
	Arch     string    `json:"arch"`
	Kernel   string    `json:"kernel"`
	CPU      string    `json:"cpu"`
	Cores    int       `json:"cores"`
	MemoryMB int       `json:"memoryMB"`
	// Cgroup is v1, v2 or empty; CPUMax and MemoryMax are this process's
	// limits as the kernel writes them.
	Cgroup    string            `json:"cgroup"`
	CPUMax    string            `json:"cpuMax"`
	MemoryMax string            `json:"memoryMax"`
	LoadAvg   string            `json:"loadAverage"` // when the run started
	Modules   map[string]string `json:"modules"`     // versions of the libraries
}

// ReadEnv describes this machine and program.
func ReadEnv(command []string, started time.Time) Env {
	e := Env{
		Started: started.UTC().Truncate(time.Second), Command: command,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Kernel:    firstLine("/proc/sys/kernel/osrelease"),
		CPU:       procField("/proc/cpuinfo", "model name"),
		LoadAvg:   firstLine("/proc/loadavg"),
		CPUMax:    firstLine("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
		MemoryMax: firstLine("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
	}
	var kB int
	if _, err := fmt.Sscan(procField("/proc/meminfo", "MemTotal"), &kB); err == nil {
		e.MemoryMB = kB / 1024
	}
	switch {
	case exists("/sys/fs/cgroup/cgroup.controllers"):
		e.Cgroup = "v2"
	case exists("/sys/fs/cgroup/cpu"):
		e.Cgroup = "v1"
	}
	e.readBuild()
	return e
}

// readBuild asks the binary for its commit and libraries; a program started
// with "go run" carries no commit, so that the checkout is asked.
func (e *Env) readBuild() {
	e.Modules = map[string]string{}
	info, known := debug.ReadBuildInfo()
	if !known {
		return
	}
	for _, m := range info.Deps {
		e.Modules[m.Path] = m.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			e.Commit = s.Value
		case "vcs.modified":
			e.Dirty = s.Value == "true"
		}
	}
	if mod, err := os.ReadFile("go.mod"); e.Commit != "" || err != nil || !strings.HasPrefix(string(mod), "module "+info.Main.Path+"\n") {
		return
	}
	if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		e.Commit = strings.TrimSpace(string(out))
	}
	if out, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output(); err == nil {
		e.Dirty = len(out) > 0
	}
}

func (e Env) write(path string) error {
	raw, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return writeFile(path, append(raw, '\n'))
}

// readEnv reads an env.json that may not be there.
func readEnv(path string) (e Env, known bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return e, false
	}
	return e, json.Unmarshal(raw, &e) == nil
}

// firstLine of the first of the files that can be read.
func firstLine(paths ...string) string {
	for _, path := range paths {
		if raw, err := os.ReadFile(path); err == nil {
			line, _, _ := strings.Cut(string(raw), "\n")
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// procField gives the value of a "name : value" line of a file of /proc.
func procField(path, name string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
