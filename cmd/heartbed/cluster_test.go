package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each fault of the flags for a cluster of the user's is bad input and named.
func TestFlagsOfOneBackend(t *testing.T) {
	config := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte(`
apiVersion: v1
kind: Config
current-context: prod
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: prod, context: {cluster: c, user: u}}, {name: lab, context: {cluster: c, user: u}}]
`), 0o600))
	on := func(args ...string) []string {
		return append([]string{"run", "--scenario", "A", "--backend", "cluster", "--kubeconfig", config}, args...)
	}
	for want, args := range map[string][]string{
		"--image means nothing with --backend sim, expected --backend cluster":  {"run", "--scenario", "A", "--image", "x"},
		"--load-pod means nothing with --backend cluster, expected --backend k": on("--load-pod"),
		`context: found "test", expected one of lab, prod`:                      on("--context", "test"),
		`context: found "prod", which is named like production`:                 on(),
		`namespace: found "Shop 1"`:                                             on("--context", "lab", "--namespace", "Shop 1"),
	} {
		code, _, stderr := heartbed(t, args...)
		require.Equal(t, 2, code, stderr)
		require.Contains(t, stderr, want)
	}
	code, _, stderr := heartbed(t, on("--context", "lab")...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "API server http://127.0.0.1:1 of context lab does not answer")
}
