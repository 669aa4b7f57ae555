package experiments_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"heartbed/analysis"
	"heartbed/experiments"
)

// A seen share may be this far from the table's, beyond as many standard
// deviations of its draws as no run of a test ever sees.
const (
	seenOff     = 0.03
	neverBeyond = 4.5
)

// A short pairwise experiment with three policies on a kind cluster: kube-proxy
// deals connections, and the callers of the others send what their table says.
func TestPairwiseOnKind(t *testing.T) {
	onKind(t)
	results := map[string]experiments.Result{}
	environment.Test(t, features.New("pairwise experiment").
		Setup(func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			results = runFile(ctx, t, "testdata/kind.yaml")
			return ctx
		}).
		Assess("every run has a result", func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			for name, r := range results {
				t.Logf("%-10s %s %v, P99 %.0f ms, %v", name, r.Verdict, r.Reasons, r.LatencyMs.P99, r.Warnings)
				// A machine that other work keeps from sending in time says nothing
				// against the cluster, and shares do not depend on it.
				reasons := slices.DeleteFunc(slices.Clone(r.Reasons), func(s string) bool {
					return strings.Contains(s, "generator was late") || strings.Contains(s, "packets were late")
				})
				require.Empty(t, reasons, name)
				require.GreaterOrEqual(t, r.AchievedRPS, 0.99*r.OfferedRPS, name)
			}
			return ctx
		}).
		Assess("seen shares are the table's", func(ctx context.Context, t *testing.T, _ *envconf.Config) context.Context {
			for _, name := range []string{"lata", "heart"} {
				followsTable(t, name, results[name])
			}
			return ctx
		}).Feature())
}

// runFile runs a scenario file on the cluster and gives its results by method.
func runFile(ctx context.Context, t *testing.T, file string) map[string]experiments.Result {
	t.Helper()
	s, err := experiments.LoadFile(file)
	require.NoError(t, err)
	e, err := s.Experiment(experiments.Selection{}, "kind")
	require.NoError(t, err)
	dir := t.TempDir()
	outcome, err := e.Run(ctx, cluster, experiments.Options{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, outcome.Failure(), "%v", outcome.Results)
	_, err = analysis.Read(dir)
	require.NoError(t, err)
	results := map[string]experiments.Result{}
	for _, r := range outcome.Results {
		results[r.Trial.Policy] = r
	}
	return results
}

// followsTable asserts that what was seen is what was intended.
func followsTable(t *testing.T, name string, r experiments.Result) {
	t.Helper()
	sent := map[string]float64{} // by caller group; each calls one component
	for _, s := range r.Shares {
		sent[s.From] += float64(s.Requests)
	}
	compared := 0
	for _, s := range r.Shares {
		if s.Intended == nil || sent[s.From] < 100 {
			continue
		}
		off := seenOff + neverBeyond*math.Sqrt(*s.Intended*(1-*s.Intended)/sent[s.From])
		require.InDelta(t, *s.Intended, s.Seen, off, "%s: %s to %s of %.0f requests", name, s.From, s.To, sent[s.From])
		compared++
	}
	require.NotZero(t, compared, "%s: no share to compare", name)
}
