package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// WorkloadEnv is the environment variable that names the workload program.
const WorkloadEnv = "HEARTBED_WORKLOAD"

const workloadPackage = "heartbed/cmd/workload"

// Workload finds the workload program, named or in its usual places, or builds
// it with the help of folder, which it calls for then.
func Workload(ctx context.Context, named string, folder func() (string, error)) (string, error) {
	if named := cmp.Or(named, os.Getenv(WorkloadEnv)); named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("workload program: %w", err)
		}
		return filepath.Abs(named)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "workload")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	return built.path(ctx, folder)
}

// built is the workload program that this process has built for all its
// sessions. It is kept as an open file without a name, so that it needs no
// place that somebody has to clean.
var built builtProgram

type builtProgram struct {
	mu   sync.Mutex
	file *os.File // nil = not built yet
}

// path names the open file for as long as this process lives. A build that
// failed is tried again.
func (b *builtProgram) path(ctx context.Context, folder func() (string, error)) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.file == nil {
		dir, err := folder()
		if err != nil {
			return "", err
		}
		if b.file, err = buildWorkload(ctx, filepath.Join(dir, "workload")); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), b.file.Fd()), nil
}

func buildWorkload(ctx context.Context, out string) (*os.File, error) {
	build := exec.CommandContext(ctx, "go", "build", "-o", out, workloadPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("build workload program: %w: %s", err, strings.TrimSpace(string(said))),
			fmt.Errorf("no program in $%s or beside heartbed; build one in the source tree: go build -o workload ./cmd/workload", WorkloadEnv))
	}
	f, err := os.Open(out)
	if err != nil {
		return nil, fmt.Errorf("workload program: %w", err)
	}
	if err := os.Remove(out); err != nil {
		return nil, errors.Join(fmt.Errorf("workload program: %w", err), f.Close())
	}
	return f, nil
}
