package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

func TestNames(t *testing.T) {
	require.Subset(t, Names(), []string{"heart", "kubeproxy", "lata", "least-request", "localization", "opttraffic", "roundrobin"})
	require.IsIncreasing(t, Names())
	for _, name := range Names() {
		spec, known := Lookup(name)
		require.True(t, known)
		require.NotEmpty(t, spec.Summary, name)
		for _, p := range spec.Params {
			require.NotEmpty(t, p.Help, "%s %s", name, p.Name)
		}
		_, err := New(name, nil)
		require.NoError(t, err, "the defaults are valid")
	}
}

// All faults at once, each with what was found and what is expected.
func TestNewFaults(t *testing.T) {
	cases := map[string]struct {
		policy string
		params map[string]string
		want   []string
	}{
		"unknown policy":      {"fastest", nil, []string{`policy "fastest" is unknown, expected one of`, "heart, kubeproxy"}},
		"unknown parameter":   {"lata", map[string]string{"alpha": "1"}, []string{`"lata": parameter "alpha" is unknown, expected one of supply, truncate`}},
		"none expected":       {"roundrobin", map[string]string{"x": "1"}, []string{`parameter "x" is unknown, expected none`}},
		"several":             {"heart", map[string]string{"alpha": "best", "few": "2", "window": "1.5", "filter": "yes", "beta": ""}, []string{`alpha is "best", expected one of cv,`, `few is "2", expected a number from 0 to 1`, `window is "1.5", expected a whole number from 1`, `filter is "yes", expected one of on, off`, `parameter "beta" is unknown`}},
		"no number":           {"heart", map[string]string{"cv-ref": "NaN"}, []string{`cv-ref is "NaN"`}},
		"contradicting range": {"heart", map[string]string{"alpha-min": "0.9"}, []string{"alpha-min is 0.9, more than alpha-max 0.8"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.policy, c.params)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestRegisterTwice(t *testing.T) {
	require.PanicsWithValue(t, `policy "heart" is registered twice`, func() {
		register(Spec{Name: "heart", New: func(Values) (heart.Policy, error) { return nil, nil }})
	})
}
