package xds

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

// python is Debian's interpreter, for which python3-grpcio brings gRPC. Its
// client is the C++ one, with which Ruby, PHP and C# have shared it.
const python = "/usr/bin/python3"

// A client that shares no code with the server follows the tables too.
func TestPythonFollowsTheWeights(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import grpc").CombinedOutput(); err != nil {
		t.Skipf("needs Debian's python3-grpcio: %v %s", err, out)
	}
	o, _ := pair(t, "e1", "e2", "e3")
	s, at := startServer(t, o, "127.0.0.1:0")
	bootstrap, err := Bootstrap(at, "d1")
	require.NoError(t, err)
	require.NoError(t, s.Route(t.Context(), table(heart.Weighted, one("e1", 0), one("e2", 4), one("e3", 1))))
	cmd := exec.CommandContext(t.Context(), python, "testdata/client.py", "e", "1000")
	cmd.Env = append(os.Environ(), BootstrapEnv+"="+string(bootstrap))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	counts := map[string]int{}
	require.NoError(t, json.Unmarshal(out, &counts))
	requireShares(t, map[string]float64{"e2": .8, "e3": .2}, counts)
}
