package experiments_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"heartbed/testbed"
	"heartbed/testbed/kind"
	"heartbed/testbed/netns"
	"heartbed/testbed/sim"
	"heartbed/testbed/testbedtest"
)

// simulator is where the papers' figures can be expected.
const simulator = "sim"

var backendFlag = flag.String("backend", simulator, "where the ablation runs: sim, netns or kind")

// cluster is one for all tests of this package that need one; environment takes
// it down, also when a test panics.
var (
	cluster     = &kind.Backend{}
	environment = env.New()
)

func TestMain(m *testing.M) {
	flag.Parse()
	environment.Finish(func(ctx context.Context, _ *envconf.Config) (context.Context, error) {
		return ctx, cluster.Close()
	})
	os.Exit(environment.Run(m))
}

// backend is that of -backend, which must be able to run here.
func backend(t *testing.T) testbed.Backend {
	t.Helper()
	places := map[string]testbed.Backend{simulator: sim.Backend{}, "netns": netns.Backend{}, "kind": cluster}
	b, known := places[*backendFlag]
	require.True(t, known, "-backend: found %q, expected sim, netns or kind", *backendFlag)
	if !onSimulator() {
		testbedtest.Require(t, *backendFlag, b.Check(t.Context()))
	}
	return b
}

// onKind skips what is not for -backend kind, and fails or skips where that
// cannot run.
func onKind(t *testing.T) {
	t.Helper()
	if *backendFlag != "kind" {
		t.Skip("runs with -backend kind (make test-kind)")
	}
	testbedtest.Require(t, "kind", cluster.Check(t.Context()))
}

// onSimulator says whether time is simulated, and many trials cost little.
func onSimulator() bool { return *backendFlag == simulator }
