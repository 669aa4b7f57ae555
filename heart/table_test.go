package heart

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func twoComponents() Topology {
	return Topology{
		Nodes: []Node{{Name: "n1"}, {Name: "n2"}},
		RTT:   [][]time.Duration{{0, time.Millisecond}, {2 * time.Millisecond, 0}},
		Replicas: []Replica{
			{Name: "d1", Component: "d", Node: "n1"}, {Name: "d2", Component: "d", Node: "n2"},
			{Name: "e1", Component: "e", Node: "n1"}, {Name: "e2", Component: "e", Node: "n2"},
		},
		Calls: []Call{{From: "d", To: "e"}},
	}
}

func goodTable() RoutingTable {
	return RoutingTable{
		Groups: []Group{
			{Name: "d", Component: "d", Replicas: []string{"d1", "d2"}},
			{Name: "e@n1", Component: "e", Node: "n1", Replicas: []string{"e1"}},
			{Name: "e@n2", Component: "e", Node: "n2", Replicas: []string{"e2"}},
		},
		Routes: []Route{{From: "d", To: "e", Balancer: Weighted, Shares: []Share{{"e@n1", 3}, {"e@n2", 1}}}},
	}
}

func TestTableValidate(t *testing.T) {
	require.NoError(t, goodTable().Validate(twoComponents()))
	require.NoError(t, RoutingTable{}.Validate(Topology{}), "nothing to route")

	cases := map[string]struct {
		change func(*RoutingTable)
		want   []string
	}{
		"empty table":             {func(rt *RoutingTable) { *rt = RoutingTable{} }, []string{`replica "d1" has 0 routes to "e"`, `replica "d2" has 0 routes`}},
		"two routes":              {func(rt *RoutingTable) { rt.Routes = append(rt.Routes, rt.Routes[0]) }, []string{`replica "d1" has 2 routes to "e", expected 1`}},
		"group twice":             {func(rt *RoutingTable) { rt.Groups = append(rt.Groups, rt.Groups[1]) }, []string{`group "e@n1" is listed twice`}},
		"group without replica":   {func(rt *RoutingTable) { rt.Groups[1].Replicas = nil }, []string{`group "e@n1" has no replica`}},
		"unknown replica":         {func(rt *RoutingTable) { rt.Groups[1].Replicas = []string{"e9"} }, []string{`replica "e9" is unknown`}},
		"replica of another":      {func(rt *RoutingTable) { rt.Groups[1].Replicas = []string{"d1"} }, []string{`replica "d1" belongs to "d"`}},
		"unknown caller":          {func(rt *RoutingTable) { rt.Routes[0].From = "x" }, []string{"caller group is unknown", `"d1" has 0 routes`}},
		"unknown callee":          {func(rt *RoutingTable) { rt.Routes[0].Shares[0].To = "e@n9" }, []string{`"e@n9" is not a group of "e"`}},
		"callee of another":       {func(rt *RoutingTable) { rt.Routes[0].Shares[0].To = "d" }, []string{`"d" is not a group of "e"`}},
		"unknown balancer":        {func(rt *RoutingTable) { rt.Routes[0].Balancer = "best" }, []string{`balancer "best" is unknown`}},
		"no weight":               {func(rt *RoutingTable) { rt.Routes[0].Shares = nil }, []string{"all weights are zero"}},
		"more than Envoy's limit": {func(rt *RoutingTable) { rt.Routes[0].Shares[0].Weight = 1<<32 - 1 }, []string{"4294967296"}},
		"several faults": {func(rt *RoutingTable) { rt.Routes[0].Balancer, rt.Groups[2].Replicas = "", nil },
			[]string{`balancer "" is unknown`, `group "e@n2" has no replica`}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table := goodTable()
			c.change(&table)
			err := table.Validate(twoComponents())
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// A replica that the topology lists twice has one route too few.
func TestTableValidateDuplicateReplica(t *testing.T) {
	topology := twoComponents()
	topology.Replicas = append(topology.Replicas, topology.Replicas[0])
	require.ErrorContains(t, goodTable().Validate(topology), `replica "d1" has 0 routes`)
}

func TestTopologyValidate(t *testing.T) {
	require.NoError(t, twoComponents().Validate())
	bad := twoComponents()
	bad.Nodes = append(bad.Nodes, Node{Name: "n1"})
	bad.Replicas = append(bad.Replicas, Replica{Name: "d1", Component: "f", Node: "n9"})
	bad.Calls = append(bad.Calls, Call{From: "x", To: "d"})
	bad.RTT[0] = []time.Duration{0, Unmeasured, -7}
	err := bad.Validate()
	want := []string{
		`node "n1" is listed twice`,
		`replica "d1" is listed twice`,
		`replica "d1" is on node "n9", which is not listed`,
		`call x to d: component "x" has no replica`,
		"RTT has 2 rows for 3 nodes",
		"RTT row 1 value 3 is negative: -7ns",
		"RTT row 2 has 2 values for 3 nodes",
	}
	require.ElementsMatch(t, want, strings.Split(err.Error(), "\n"))
}

func TestComponents(t *testing.T) {
	require.Equal(t, []string{"d", "e"}, twoComponents().Components())
	require.Equal(t, map[string]int{"n1": 0, "n2": 1}, twoComponents().NodeIndex())
}
