package experiments

import (
	"fmt"
	"time"

	"heartbed/heart"
	"heartbed/heart/policy"
)

// WorkedExamples computes the figures of the papers that need no run, by name.
// The critical path (ms) is the slowest link a request may take in the example
// of HEART's motivation: two callers that send half of the requests each, two
// callees that take half each, links of 10, 80, 80 and 100 ms. Without the
// filter that is LATA's optimum.
func WorkedExamples() (map[string]float64, error) {
	all, err := criticalPathMs("off")
	if err != nil {
		return nil, err
	}
	filtered, err := criticalPathMs("on")
	if err != nil {
		return nil, err
	}
	return map[string]float64{"criticalPathAllLinksMs": all, "criticalPathFilteredMs": filtered}, nil
}

func criticalPathMs(filter string) (float64, error) {
	const ms = time.Millisecond
	o := heart.Observation{Topology: heart.Topology{
		Nodes: []heart.Node{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}, {Name: "n4"}},
		RTT: [][]time.Duration{
			{0, 1 * ms, 10 * ms, 80 * ms},
			{1 * ms, 0, 80 * ms, 100 * ms},
			{10 * ms, 80 * ms, 0, 1 * ms},
			{80 * ms, 100 * ms, 1 * ms, 0},
		},
		Replicas: []heart.Replica{
			{Name: "a1", Component: "a", Node: "n1"}, {Name: "a2", Component: "a", Node: "n2"},
			{Name: "b1", Component: "b", Node: "n3"}, {Name: "b2", Component: "b", Node: "n4"},
		},
		Calls: []heart.Call{{From: "a", To: "b"}},
	}}
	p, err := policy.New("heart", map[string]string{"filter": filter})
	if err != nil {
		return 0, fmt.Errorf("worked example: %w", err)
	}
	decision, err := p.Allocate(o, nil)
	if err != nil {
		return 0, fmt.Errorf("worked example: %w", err)
	}
	return slowestLinkMs(o.Topology, decision.Table), nil
}

// slowestLinkMs gives the largest round-trip time between two groups of one
// node each that a table sends requests over, ms.
func slowestLinkMs(t heart.Topology, table heart.RoutingTable) float64 {
	groups, index := groupsByName(table), t.NodeIndex()
	slowest := time.Duration(0)
	for _, route := range table.Routes {
		for _, s := range route.Shares {
			if s.Weight > 0 {
				slowest = max(slowest, t.RTT[index[groups[route.From].Node]][index[groups[s.To].Node]])
			}
		}
	}
	return slowest.Seconds() * 1000
}
