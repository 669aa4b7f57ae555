package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"heartbed/heart"
)

// dag is the ICSOC 2024 set-up of LATA and LARP: A5 B3 C4 D3 E5 at half a core
// and 500 MB each, on four workers.
func dag(cores float64) Input {
	in := Input{RTT: matrix([][]int{{0, 7, 18, 34}, {7, 0, 10, 38}, {18, 10, 0, 11}, {34, 38, 11, 0}})}
	for i := range 4 {
		in.Nodes = append(in.Nodes, Node{fmt.Sprintf("w%d", i+1), cores, 8000})
	}
	for i, n := range []int{5, 3, 4, 3, 5} {
		in.Services = append(in.Services, Service{string(rune('a' + i)), n, 0.5, 500})
	}
	return in
}

func matrix(ms [][]int) [][]time.Duration {
	rtt := make([][]time.Duration, len(ms))
	for i, row := range ms {
		for _, v := range row {
			rtt[i] = append(rtt[i], time.Duration(v)*time.Millisecond)
		}
	}
	return rtt
}

// show writes a placement as "w1: a1 b1; w2: ...".
func show(replicas []heart.Replica) string {
	on := map[string][]string{}
	for _, r := range replicas {
		on[r.Node] = append(on[r.Node], r.Name)
	}
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(on)) {
		parts = append(parts, node+": "+strings.Join(on[node], " "))
	}
	return strings.Join(parts, "; ")
}

// LARP paper (ICSOC 2024), placement algorithm: P1 is its DAG application and
// the placement its authors deployed, P2 its two-service example.
func TestLARP(t *testing.T) {
	small := Input{
		Services: []Service{{"a", 3, 1, 0}, {"b", 2, 1, 0}},
		Nodes:    []Node{{"n1", 4, 0}, {"n2", 4, 0}, {"n3", 2, 0}},
		RTT:      matrix([][]int{{0, 30, 5}, {30, 0, 9}, {5, 9, 0}}),
	}
	oneNode := Input{
		Services: []Service{{"a", 2, 1, 0}, {"b", 2, 1, 0}},
		Nodes:    []Node{{"n1", 4, 0}}, RTT: matrix([][]int{{0}}),
	}
	// From b, d is nearest to the first node, but c to the first two together.
	fork := Input{
		Services: []Service{{"a", 3, 1, 0}},
		Nodes:    []Node{{"n1", 1, 0}, {"n2", 1, 0}, {"n3", 1, 0}, {"n4", 1, 0}},
		RTT:      matrix([][]int{{0, 1, 3, 2}, {90, 0, 1, 50}, {90, 90, 0, 90}, {90, 90, 90, 0}}),
	}
	cases := map[string]struct {
		in   Input
		near Near
		want string
	}{
		"P1, the DAG as deployed":       {dag(4), NearFirst, "w1: a4 c4 e4; w2: a2 b2 c2 d2 e2; w3: a1 a5 b1 c1 d1 e1 e5; w4: a3 b3 c3 d3 e3"},
		"P2, two groups":                {small, NearFirst, "n1: a1 a3 b1; n3: a2 b2"},
		"more groups than nodes":        {oneNode, NearFirst, "n1: a1 a2 b1 b2"},
		"nearest to the first node":     {fork, NearFirst, "n1: a1; n2: a2; n4: a3"},
		"nearest to all chosen before":  {fork, NearAll, "n1: a1; n2: a2; n3: a3"},
		"nothing to place":              {Input{Nodes: small.Nodes, RTT: small.RTT}, NearFirst, ""},
		"without limits all fits alike": {dag(0), NearFirst, "w1: a4 c4 e4; w2: a2 b2 c2 d2 e2; w3: a1 a5 b1 c1 d1 e1 e5; w4: a3 b3 c3 d3 e3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := LARP(c.in, c.near)
			require.NoError(t, err)
			require.Equal(t, c.want, show(got))
		})
	}
}

func TestLARPUnmeasuredIsFar(t *testing.T) {
	in := dag(4)
	in.RTT[2][1] = heart.Unmeasured // w3 no longer knows its nearest neighbour
	got, err := LARP(in, NearFirst)
	require.NoError(t, err)
	require.Contains(t, show(got), "w2: a1 a5 b1 c1 d1 e1 e5", "another start is better than an unknown distance")
}

func TestPack(t *testing.T) {
	got, err := Place("pack", dag(3)) // six replicas a node
	require.NoError(t, err)
	require.Equal(t, "w1: a1 a2 a3 a4 a5 b1; w2: b2 b3 c1 c2 c3 c4; w3: d1 d2 d3 e1 e2 e3; w4: e4 e5", show(got))
}

func TestSpread(t *testing.T) {
	got, err := Place("spread", dag(4))
	require.NoError(t, err)
	require.Equal(t, "w1: a1 a5 c1 d1 e2; w2: a2 b1 c2 d2 e3; w3: a3 b2 c3 d3 e4; w4: a4 b3 c4 e1 e5", show(got))

	full := Input{
		Services: []Service{{"a", 4, 1, 0}},
		Nodes:    []Node{{"n1", 1, 0}, {"n2", 3, 0}}, RTT: matrix([][]int{{0, 1}, {1, 0}}),
	}
	got, err = Place("spread", full)
	require.NoError(t, err)
	require.Equal(t, "n1: a1; n2: a2 a3 a4", show(got), "a full node is passed over")
}

func TestGiven(t *testing.T) {
	in := Input{Services: []Service{{"a", 2, 1, 0}, {"b", 1, 1, 0}}, Nodes: []Node{{"n1", 1, 0}, {"n2", 1, 0}}}
	got, err := Given(in, map[string][]string{"a": {"n2", "n2"}, "b": {"n1"}})
	require.NoError(t, err)
	require.Equal(t, "n1: b1; n2: a1 a2", show(got))

	_, err = Given(in, map[string][]string{"a": {"n2", "n9"}, "c": {"n1"}})
	require.ErrorContains(t, err, `replica a2: node "n9" is unknown`)
	require.ErrorContains(t, err, "service b has 1 replicas, 0 nodes are given")
	require.ErrorContains(t, err, `nodes are given for "c", which is no service`)
}

// Every rule names what does not fit.
func TestErrors(t *testing.T) {
	cases := map[string]struct {
		rule string
		in   Input
		want string
	}{
		"unknown rule":    {"best", dag(4), `rule "best" is unknown, expected one of larp, larp-all, pack, spread`},
		"larp too large":  {"larp", dag(3), "group 1 of 4 (a1 a5 b1 c1 d1 e1 e5: 3.5 cores, 3500 MB) fits on no node"},
		"pack too large":  {"pack", dag(2), "replica e2 (0.5 cores, 500 MB) fits on no node"},
		"spread no nodes": {"spread", Input{Services: []Service{{"a", 1, 1, 1}}}, "there are no nodes"},
		"short RTT row":   {"larp", Input{Nodes: []Node{{"n1", 1, 1}}, RTT: [][]time.Duration{{}}}, "RTT row 1 has 0 values"},
		"negative CPU":    {"pack", Input{Services: []Service{{"a", 1, -1, 1}}, Nodes: []Node{{"n1", 1, 1}}, RTT: matrix([][]int{{0}})}, "service a"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Place(c.rule, c.in)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Whatever a rule places: every replica once, in order, no node overfull.
func TestRulesKeepLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{}
		nodes := rapid.IntRange(1, 5).Draw(t, "nodes")
		for i := range nodes {
			in.Nodes = append(in.Nodes, Node{fmt.Sprintf("n%d", i+1), rapid.Float64Range(0, 6).Draw(t, "cores"), rapid.Float64Range(0, 6000).Draw(t, "memory")})
			row := make([]time.Duration, nodes)
			for j := range row {
				row[j] = time.Duration(rapid.IntRange(-1, 50).Draw(t, "rtt"))
			}
			in.RTT = append(in.RTT, row)
		}
		var want []string
		for i := range rapid.IntRange(0, 4).Draw(t, "services") {
			s := Service{string(rune('a' + i)), rapid.IntRange(0, 5).Draw(t, "replicas"), rapid.Float64Range(0, 2).Draw(t, "cpu"), rapid.Float64Range(0, 900).Draw(t, "mb")}
			in.Services = append(in.Services, s)
			for k := range s.Replicas {
				want = append(want, s.replica(k))
			}
		}
		rule := rapid.SampledFrom(Rules()).Draw(t, "rule")
		got, err := Place(rule, in)
		if err != nil {
			require.ErrorContains(t, err, "fits on no node")
			return
		}
		free := newRoom(in.Nodes)
		for k, r := range got {
			require.Equal(t, want[k], r.Name)
			n := slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == r.Node })
			s := in.Services[slices.IndexFunc(in.Services, func(s Service) bool { return s.Name == r.Component })]
			free.take(n, s.CPU, s.MemoryMB)
			require.Greater(t, free.cores[n], -1e-2)
			require.Greater(t, free.memory[n], -1e-2)
		}
		require.Len(t, got, len(want))
	})
}
