package analysis

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
	"heartbed/heart/policy"
)

// Every published figure of the papers and of activescale is there: so many of each group.
func TestClaimsAreComplete(t *testing.T) {
	claims, err := LoadClaims()
	require.NoError(t, err)
	want := map[string]int{
		"heart-motivation": 6, "scheduling-time": 4, "heart-ablation-filter": 1, "heart-pairwise": 8, "heart-dag": 8, "heart-dag-cpu": 3,
		"heart-ablation-trend": 8, "lata-motivation-delay": 4, "lata-motivation-localization": 4, "lata-motivation-opttraffic": 2,
		"lata-dag": 7, "lata-overall": 2, "lata-bookinfo": 1, "lata-placement-independence": 1,
		"activescale-detection": 2, "activescale-signal-order": 4, "activescale-signal-lead": 2, "activescale-sample": 4,
		"activescale-coverage": 8, "activescale-delay": 11, "activescale-steps": 7, "activescale-utilisation": 2,
	}
	got := map[string]int{}
	number := regexp.MustCompile(`-\d+$`)
	for _, c := range claims.Claims {
		got[number.ReplaceAllString(c.ID, "")]++
	}
	require.Equal(t, want, got)
	require.Len(t, claims.Claims, 99)
}

// Every claim is bound to cells that the embedded scenarios run, or says what
// else measures it.
func TestClaimsAreBoundToWhatIsRun(t *testing.T) {
	claims, err := LoadClaims()
	require.NoError(t, err)
	examples, err := experiments.WorkedExamples()
	require.NoError(t, err)
	scenarios := map[string]experiments.Scenario{}
	for _, name := range experiments.Names() {
		scenarios[name], err = experiments.Load(name)
		require.NoError(t, err)
	}
	for _, c := range claims.Claims {
		m := c.Measure
		switch {
		case m.Undefined != "":
			continue
		case m.Vector != "":
			require.Contains(t, examples, m.Vector, c.ID)
			continue
		case m.Scale != nil:
			require.Contains(t, policy.Names(), m.Scale.Policy, c.ID)
			require.Contains(t, policy.Names(), m.Scale.Rival, c.ID)
			continue
		}
		keys := m.Of.cells()
		if m.Against != nil {
			for _, k := range m.Of.cells() {
				keys = append(keys, m.Against.against(k)...)
			}
		}
		for _, k := range keys {
			s, ok := scenarios[k.Scenario]
			require.True(t, ok, "%s: no scenario %s", c.ID, k.Scenario)
			app, ok := s.Apps[k.App]
			require.True(t, ok, "%s: %s has no app %s", c.ID, k.Scenario, k.App)
			require.Contains(t, app.RPS, k.RPS, "%s: rate of %s", c.ID, k)
			require.True(t, slices.Contains(s.Compare, k.Policy), "%s: %s does not compare %s", c.ID, k.Scenario, k.Policy)
		}
	}
}

func TestParseClaimsRefusesWhatItDoesNotKnow(t *testing.T) {
	head := "tolerances: {latency: {factor: 1.5}}\norderMargin: 0.1\nclaims:\n"
	good := "  - {id: a, paper: P, says: s, published: 1, unit: ms, kind: latency, measure: {metric: p99, of: {scenario: S, app: x, policy: y, rps: 1}}}\n"
	cases := []struct{ name, input, want string }{
		{"good", head + good, ""},
		{"unknown key", head + "  - {id: a, papr: P}\n", "papr"},
		{"twice", head + good + good, "found twice"},
		{"unknown kind", head + replace(good, "kind: latency", "kind: wish"), `kind: found "wish"`},
		{"unknown metric", head + replace(good, "metric: p99", "metric: p42"), `measure.metric: found "p42"`},
		{"unknown form", head + replace(good, "metric: p99", "metric: p99, form: guess"), `measure.form: found "guess"`},
		{"nothing to compare with", head + replace(good, "metric: p99", "metric: p99, form: ratio"), "measure.against"},
		{"several cells", head + replace(good, "rps: 1", "rps: [1, 2]"), "measure.take"},
		{"no cell", head + replace(good, "app: x, ", ""), "measure.of"},
		{"no text", head + replace(good, "says: s, ", ""), "says: found nothing"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseClaims([]byte(c.input))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func replace(s, old, with string) string {
	return regexp.MustCompile(regexp.QuoteMeta(old)).ReplaceAllString(s, with)
}
