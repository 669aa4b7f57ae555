package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/cmd/internal/cli"
	"heartbed/heart/istio/istiotest"
)

// build makes the program.
func build(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "heart")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return file
}

// TestOneDecides runs the program twice: the second waits for the lease until
// the first is killed. Nothing that writes goes in between.
func TestOneDecides(t *testing.T) {
	requirePrograms(t)
	l := newLive(t, "", nil)
	l.InstallIstio(t)
	program := build(t)
	first := istiotest.Run(t, program, l.args(t)...)
	soon(t, "leader", output{first}, func() bool { return l.metric(t, "heart_leader 1") && l.steps(t, "none") >= 1 })
	standby := l
	standby.listen = free(t)
	second := istiotest.Run(t, program, standby.args(t)...)
	soon(t, "standby", output{second}, func() bool { return standby.metric(t, "heart_leader 0") })
	require.Equal(t, http.StatusOK, standby.status(t, "/readyz"), "a standby is ready")

	other := l
	other.listen = free(t)
	for command, want := range map[string]string{"--once": "; --dry-run shows what a step would change", "reset": " and would write everything again: end it first"} {
		code, _, stderr := run(t, other.args(t, command)...)
		require.Equal(t, cli.Failed, code)
		require.Contains(t, stderr, "decides: it holds the lease shop/heart")
		require.Contains(t, stderr, want)
	}
	l.waitSteps(t) // a dry run needs no lease

	inForce := l.version(t)
	first.Stop()
	soon(t, "successor", output{second}, func() bool { return standby.metric(t, "heart_leader 1") && standby.steps(t, "none") >= 1 })
	require.NotEmpty(t, inForce)
	require.Contains(t, l.written(t), "virtualservices/heart-e")

	require.Equal(t, cli.Done, second.Terminate(t))
	require.Contains(t, second.Output(), "ended; the routing table stays in force")
	for line := range strings.Lines(second.Output()) {
		require.True(t, json.Valid([]byte(line)), line)
	}
	code, _, stderr := run(t, l.args(t, "reset")...)
	require.Equal(t, cli.Done, code, stderr)
	require.Empty(t, l.written(t))
}

// output of a process, for a message.
type output struct{ *istiotest.Process }

func (o output) String() string { return o.Output() }
