package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/cmd/internal/cli"
	"heartbed/heart"
)

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func write(t *testing.T, name, text string) string {
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const good = `
namespace: shop
calls: [{from: d, to: e}]
prometheus: {address: "http://127.0.0.1:1", cpu: {preset: heartbed}, requests: {preset: heartbed}}
`

func TestBadInput(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"unknown field", good + "perod: 3s\n", "field perod not found"},
		{"no namespace", strings.Replace(good, "namespace: shop", "", 1), "namespace: found none, expected one"},
		{"no calls", strings.Replace(good, "{from: d, to: e}", "", 1), "calls: found none"},
		{"half a call", strings.Replace(good, ", to: e", "", 1), `calls[0]: found from "d" to "", expected two components`},
		{"unknown policy", good + "policy: fastest\n", `policy "fastest" is unknown`},
		{"unknown parameter", good + "params: {x: \"1\"}\n", `parameter "x" is unknown`},
		{"router", good + "router: ring\n", `router: found "ring", expected istio or xds`},
		{"period", good + "period: 10ms\n", "period: found 10ms, expected 1s or more"},
		{"prometheus", strings.Replace(good, "http://", "", 1), `prometheus: address: found "127.0.0.1:1"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := run(t, "--config", write(t, "heart.yaml", c.config))
			require.Equal(t, cli.BadInput, code, stderr)
			require.Contains(t, stderr, c.want)
		})
	}
	code, _, stderr := run(t)
	require.Equal(t, cli.BadInput, code)
	require.Contains(t, stderr, "--config: found none, expected a file")
	code, _, stderr = run(t, "--config", write(t, "heart.yaml", good), "--kubeconfig", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, cli.BadInput, code)
	require.Contains(t, stderr, "find the cluster")
}

func replicas(all ...string) heart.Topology {
	t := heart.Topology{Nodes: []heart.Node{{Name: "n1"}, {Name: "n2"}}, Calls: []heart.Call{{From: "d", To: "e"}}}
	for _, r := range all {
		name, node, _ := strings.Cut(r, "@")
		t.Replicas = append(t.Replicas, heart.Replica{Name: name, Component: name[:1], Node: node})
	}
	t.RTT = [][]time.Duration{{0, 0}, {0, 0}}
	return t
}

// TestRefit: between two decisions a table follows the replicas.
func TestRefit(t *testing.T) {
	table := heart.RoutingTable{
		Groups: []heart.Group{
			{Name: "d@n1", Component: "d", Node: "n1", Replicas: []string{"d1"}},
			{Name: "e@n1", Component: "e", Node: "n1", Replicas: []string{"e1", "e2"}},
			{Name: "e@n2", Component: "e", Node: "n2", Replicas: []string{"e3"}},
		},
		Routes: []heart.Route{{From: "d@n1", To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e@n1", Weight: 3}, {To: "e@n2", Weight: 1}}}},
	}
	same := refit(table, replicas("d1@n1", "e1@n1", "e2@n1", "e3@n2"))
	require.Equal(t, table, same)

	gone := replicas("d1@n1", "e2@n1")
	now := refit(table, gone)
	require.NoError(t, now.Validate(gone))
	require.Equal(t, []heart.Share{{To: "e@n1", Weight: 3}}, now.Routes[0].Shares)

	come := replicas("d1@n1", "d2@n1", "e1@n1", "e2@n1", "e3@n2", "e4@n2")
	now = refit(table, come)
	require.NoError(t, now.Validate(come))
	require.Equal(t, []string{"e3", "e4"}, now.Groups[2].Replicas)
	require.Equal(t, []string{"e3"}, table.Groups[2].Replicas, "the table in force is not changed")

	elsewhere := replicas("d1@n1", "d2@n2", "e1@n1")
	require.ErrorContains(t, refit(table, elsewhere).Validate(elsewhere), `replica "d2" has 0 routes to "e"`)
}

func TestExplain(t *testing.T) {
	observed, alpha := 0.002, 0.25
	slow := heart.LinkName{From: "d@n1", To: "e@n3"}
	var out bytes.Buffer
	require.NoError(t, explain(&out, heart.Step{Decision: heart.Decision{
		Table: heart.RoutingTable{Routes: []heart.Route{{From: "d@n1", To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e@n1", Weight: 3}, {To: "e@n2", Weight: 1}}}}},
		Stages: heart.Stages{
			ATPM: []heart.ComponentTrace{{Component: "e", Groups: []heart.GroupTrace{
				{Node: "n1", Replicas: 3, Load: &observed, Alpha: &alpha, EWMA: 0.0025, Share: 0.75}, {Node: "n2", Replicas: 1, EWMA: 0.0025, Share: 0.25},
			}}},
			NTAM: []heart.PairTrace{{From: "d", To: "e", High: []heart.LinkName{slow}, Removed: []heart.LinkName{slow}, Feasible: true, CostMs: 1.5}},
		},
	}}))
	require.Equal(t, `component e: a group's share is its replicas over its CPU time a request
  3 on n1: observed 2.000 ms, weight 0.25, smoothed 2.500 ms: share 75.0 %
  1 on n2: not observed, smoothed 2.500 ms: share 25.0 %
calls d to e: 1.50 ms mean round-trip time
  d@n1 -> e@n3: slow, and the others carry all requests: removed
route d@n1 to e, weighted:
   75.0 % e@n1
   25.0 % e@n2
`, out.String())
}

// TestDashboardShowsWhatThereIs compares the names of metrics.
func TestDashboardShowsWhatThereIs(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/dashboard.json")
	require.NoError(t, err)
	require.True(t, json.Valid(raw))
	m := newMetrics()
	m.step(heart.Step{Seconds: map[string]float64{"collect": 1}, Decision: heart.Decision{Table: heart.RoutingTable{
		Routes: []heart.Route{{From: "d", To: "e", Shares: []heart.Share{{To: "e", Weight: 1}}}},
	}}}, nil)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	known := map[string]bool{}
	for _, f := range families {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			known[f.GetName()+suffix] = true
		}
	}
	shown := regexp.MustCompile(`heart_[a-z_]+`).FindAllString(string(raw), -1)
	require.Greater(t, len(shown), 6)
	for _, name := range shown {
		require.True(t, known[name], name)
	}
}
