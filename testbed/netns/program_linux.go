package netns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// WorkloadEnv is the environment variable that names the workload program.
const WorkloadEnv = "HEARTBED_WORKLOAD"

const workloadPackage = "heartbed/cmd/workload"

// workload finds the workload program or builds it into the folder.
func (o Options) workload(ctx context.Context, folder string) (string, error) {
	if named := cmp.Or(o.Workload, os.Getenv(WorkloadEnv)); named != "" {
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
	out := filepath.Join(folder, "workload")
	build := exec.CommandContext(ctx, "go", "build", "-o", out, workloadPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	if err != nil {
		return "", errors.Join(
			fmt.Errorf("build workload program: %w: %s", err, strings.TrimSpace(string(said))),
			fmt.Errorf("no program in $%s or beside heartbed; build one in the source tree: go build -o workload ./cmd/workload", WorkloadEnv))
	}
	return out, nil
}
