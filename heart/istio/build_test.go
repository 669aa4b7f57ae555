package istio

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

var update = flag.Bool("update", false, "write the golden files")

func allReady(string, map[string]string) bool { return true }

var shop = Options{Namespace: "shop"}.withDefaults()

// written shows objects as YAML documents.
func written(objects []object) string {
	var out strings.Builder
	for _, o := range objects {
		out.WriteString("# " + kinds[o.resource] + " " + o.name + "\n" + strings.Join(lines(o.spec), "\n") + "\n")
	}
	return out.String()
}

func golden(t *testing.T, name, got string) {
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestObjectsOfATable(t *testing.T) {
	table := ByNode([3]uint32{3, 996, 1}, [3]uint32{0, 0, 5})
	objects, warnings, err := build(shop, table, allReady)
	require.NoError(t, err)
	golden(t, "subsets.yaml", written(objects))
	require.Equal(t, []string{
		`route from "d@n1" to "e": the share of "e@n1", 0.30 %, is rounded to 0, because Istio's weights are whole per cent`,
		`route from "d@n1" to "e": the share of "e@n3", 0.10 %, is rounded to 0, because Istio's weights are whole per cent`,
	}, warnings)

	o := shop
	o.Localities = map[string]string{"n1": "r/z/n1", "n2": "r/z/n2", "n3": "r/z/n3"}
	objects, _, err = build(o, ByNode([3]uint32{1, 1, 2}, [3]uint32{0, 1, 0}), allReady)
	require.NoError(t, err)
	golden(t, "locality.yaml", written(objects))
}

func TestAGroupWithoutAReadyPodGetsNothing(t *testing.T) {
	table := ByNode([3]uint32{50, 30, 20})
	gone := func(_ string, labels map[string]string) bool { return labels[NodeLabel] != "n1" }
	objects, warnings, err := build(shop, table, gone)
	require.NoError(t, err)
	require.Equal(t, []string{`route from "d@n1" to "e": group "e@n1" has no ready pod and gets nothing`}, warnings)
	require.Contains(t, written(objects), "weight: 60")
	require.Contains(t, written(objects), "weight: 40")

	_, _, err = build(shop, table, func(string, map[string]string) bool { return false })
	require.ErrorContains(t, err, `routes to "e": from "d@n1": no group with a share has a ready pod with label app=e in namespace "shop"`)
}

func TestSelectors(t *testing.T) {
	group := func(name, node string, replicas ...string) heart.Group {
		return heart.Group{Name: name, Component: "e", Node: node, Replicas: replicas}
	}
	long := strings.Repeat("n", 100)
	for _, c := range []struct {
		name   string
		groups []heart.Group
		want   map[string]map[string]string
	}{
		{"whole component", []heart.Group{group("e", "", "e1", "e2")}, map[string]map[string]string{"e": nil}},
		{"by node", []heart.Group{group("e@n1", "n1", "e1", "e2"), group("e@n2", "n2", "e3")},
			map[string]map[string]string{"e@n1": {NodeLabel: "n1"}, "e@n2": {NodeLabel: "n2"}}},
		{"by replica where two are on a node", []heart.Group{group("e1", "n1", "e1"), group("e2", "n1", "e2"), group("e3", "n2", "e3")},
			map[string]map[string]string{"e1": {ReplicaLabel: "e1"}, "e2": {ReplicaLabel: "e2"}, "e3": {NodeLabel: "n2"}}},
		{"long names", []heart.Group{group("e", long, "e1")}, map[string]map[string]string{"e": {NodeLabel: long[:54] + "-" + digest(long)}}},
	} {
		got, err := selectors(c.groups)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
	}
	_, err := selectors([]heart.Group{group("some", "", "e1", "e2"), group("e3", "n2", "e3")})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, `group "some": found 2 replicas on several nodes`)
}

func TestSubsetNamesAreDNSLabelsThatNeverChangeTheirMeaning(t *testing.T) {
	n1, n2 := map[string]string{NodeLabel: "n1"}, map[string]string{NodeLabel: "n2"}
	seen := map[string]bool{}
	for _, name := range []string{
		subsetName("e@n1", "ROUND_ROBIN", n1), subsetName("e@n1", "LEAST_REQUEST", n1), subsetName("e@n1", "ROUND_ROBIN", n2),
		subsetName("E_@"+strings.Repeat("x", 90), "ROUND_ROBIN", n1), subsetName("@@", "ROUND_ROBIN", nil),
	} {
		require.Regexp(t, `^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`, name)
		require.False(t, seen[name], name)
		seen[name] = true
	}
	require.True(t, strings.HasPrefix(subsetName("e@n1", "ROUND_ROBIN", n1), "e-n1-"))
}

// TestWhatIstioCannotSay lists tables that no object expresses. None of them
// may come out as something near.
func TestWhatIstioCannotSay(t *testing.T) {
	localities := map[string]string{"n1": "r/z/n1", "n2": "r/z/n2", "n3": "r/z/n3"}
	for _, c := range []struct {
		name       string
		localities map[string]string
		change     func(*heart.RoutingTable)
		want       string
	}{
		{"per connection", nil, func(rt *heart.RoutingTable) { rt.Routes[0].Balancer = heart.PerConnection },
			`routes to "e": unsupported operation: Istio cannot be told to balance per-connection`},
		{"two balancers by locality", localities, func(rt *heart.RoutingTable) { rt.Routes[1].Balancer = heart.LeastRequest },
			"one balancer for all callers, found weighted and least-request"},
		{"two callers on a node by locality", localities, func(rt *heart.RoutingTable) {
			rt.Groups[1] = heart.Group{Name: "c@n1", Component: "c", Node: "n1", Replicas: []string{"c-1"}}
			rt.Routes[1].From = "c@n1"
		}, `groups "d@n1" and "c@n1" call from locality r/z/n1 with different shares`},
		{"a node without locality", map[string]string{"n1": "r/z/n1", "n2": "r/z/n2"}, func(*heart.RoutingTable) {},
			`group "e@n3": node "n3" has no locality`},
		{"two nodes in a locality", map[string]string{"n1": "r/z", "n2": "r/y", "n3": "r/z"}, func(*heart.RoutingTable) {},
			`two groups of "e" are in locality r/z`},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, o := ByNode([3]uint32{1, 1, 1}, [3]uint32{1, 2, 1}), shop
			c.change(&table)
			o.Localities = c.localities
			_, _, err := build(o, table, allReady)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestDiff(t *testing.T) {
	a := strings.Split("1 2 3 4 5 6 7 8 9 10 11", " ")
	b := strings.Split("1 2 3 4 5 6 7 8 9 x 11", " ")
	require.Equal(t, "  ...\n  7\n  8\n  9\n- 10\n+ x\n  11\n", diff(a, b))
	require.Equal(t, "+ x\n", diff(nil, []string{"x"}))
	require.Equal(t, "- x\n", diff([]string{"x"}, nil))
	require.Equal(t, "  ...\n", diff(a, a))
}
