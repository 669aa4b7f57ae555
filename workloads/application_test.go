package workloads

import (
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

func TestCallsListsEachEdgeOnce(t *testing.T) {
	require.Equal(t, []heart.Call{
		{From: "front", To: "cart"}, {From: "cart", To: "east"}, {From: "cart", To: "west"},
	}, valid().Calls())
	require.Empty(t, Application{}.Calls())
}

// Every built-in application can be run as it is.
func TestBuiltinApplications(t *testing.T) {
	require.Equal(t, []string{"bookinfo", "branch", "chain", "dag", "pair", "web"}, Names())
	edges := map[string]int{"bookinfo": 3, "branch": 4, "chain": 4, "dag": 4, "pair": 1, "web": 1}
	for _, name := range Names() {
		a, err := Named(name)
		require.NoError(t, err)
		require.NoError(t, a.Validate())
		require.Equal(t, name, a.Name)
		require.Len(t, a.Calls(), edges[name], name)
	}
	_, err := Named("shop")
	require.EqualError(t, err, `application "shop" is not built in, expected one of bookinfo, branch, chain, dag, pair, web`)
}

func TestParseNamesFileAndLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", "name: a\nentri: b\n", "mine.yaml: yaml: unmarshal errors:\n  line 2: field entri not found"},
		{"wrong type", "name: a\ncomponents:\n  - {name: x, replicas: many}\n", "mine.yaml: yaml: unmarshal errors:\n  line 3: cannot unmarshal !!str `many` into int"},
		{"empty", "", "mine.yaml: EOF"},
		{"no YAML", "a: [", "mine.yaml: yaml: line 1: did not find expected node content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("mine.yaml", []byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// FuzzApplication: whatever a file holds, reading it does not panic, and what
// validates has a finite call tree and each component that a call names.
func FuzzApplication(f *testing.F) {
	for _, name := range Names() {
		raw, err := builtin.ReadFile("apps/" + name + ".yaml")
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte("entry: a\ncomponents: [{name: a, replicas: 1, steps: [{choose: {a: .nan, b: 1}}]}, {name: b, replicas: 1, steps: [{call: [a, b]}]}]\nserver: {threads: 1}"))
	f.Add([]byte("server: {threads: .inf, limitCores: -0, period: 1h, burst: -1ms}\nserviceTime: {kind: lognormal, cv: .nan}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := Parse("fuzz.yaml", raw)
		if err != nil || a.Validate() != nil {
			return
		}
		depth := map[string]int{} // the longest chain of calls below, by component
		for range len(a.Components) {
			for _, c := range a.Calls() {
				depth[c.From] = max(depth[c.From], 1+depth[c.To])
			}
		}
		known := map[string]bool{}
		for _, c := range a.Components {
			known[c.Name] = true
			require.Less(t, depth[c.Name], len(a.Components), "a chain of calls is longer than there are components")
		}
		for _, c := range a.Calls() {
			require.True(t, known[c.To])
		}
		require.True(t, known[a.Entry])
	})
}
