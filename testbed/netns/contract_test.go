package netns

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

func TestContract(t *testing.T) {
	backend := Backend{Options{Journals: t.TempDir(), Workload: filepath.Join(t.TempDir(), "workload")}}
	testbedtest.Require(t, "netns", backend.Check(t.Context()))
	// Built once, not for every session.
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", backend.Options.Workload, "heartbed/cmd/workload").CombinedOutput()
	require.NoError(t, err, string(out))
	testbedtest.Run(t, backend)
}
