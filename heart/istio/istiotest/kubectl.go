package istiotest

import (
	"os/exec"
	"testing"
)

// Kubectl runs kubectl as the administrator, and gives what it prints, errors
// too.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	_, kube, err := servers()
	if err != nil {
		t.Fatal(err)
	}
	// how it ended is in what it says
	said, _ := exec.CommandContext(t.Context(), kube, append([]string{"kubectl", "--kubeconfig", c.Kubeconfig, "--cache-dir", c.file("kubectl")}, args...)...).CombinedOutput()
	return string(said)
}
