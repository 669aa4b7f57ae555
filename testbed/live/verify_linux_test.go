package live

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed"
)

func TestJudgePairsNamesWhatIsOff(t *testing.T) {
	s := &Session{}
	err := s.judgePairs([]Pair{
		{From: "n1", To: "n2", Spec: 10 * time.Millisecond, measured: 10400 * time.Microsecond},
		{From: "n1", To: "n3", Spec: 50 * time.Millisecond, measured: 100 * time.Millisecond},
		{From: "n2", To: "n3", Spec: 50 * time.Millisecond, measured: time.Millisecond},
		{From: "n1", To: "n4", Spec: 10 * time.Millisecond, measured: 23 * time.Millisecond, Jitter: 4 * time.Millisecond},
	})
	require.ErrorContains(t, err, "round trip n1 to n3: measured 100.00 ms, expected 50.00 ms")
	require.ErrorContains(t, err, "round trip n2 to n3: measured 1.00 ms")
	require.NotContains(t, err.Error(), "n1 to n2")
	require.NotContains(t, err.Error(), "n1 to n4")
	require.Len(t, s.Setup, 4)
}

func TestBurnTogether(t *testing.T) {
	nodes := func(cores ...float64) (nodes []Node) {
		for _, c := range cores {
			nodes = append(nodes, Node{Node: testbed.Node{Cores: c}})
		}
		return nodes
	}
	for _, c := range []struct {
		nodes []Node
		want  [][]int
	}{
		{nodes(0.25, 0.5, 0.5, 0.5), [][]int{{0, 1, 2, 3}}},
		{nodes(1, 1, 1), [][]int{{0, 1}, {2}}},
		{nodes(1.5, 0.75, 1.25), [][]int{{0}, {1, 2}}},
		{nodes(2, 1, 4), [][]int{{1}}},
		{nodes(4), nil},
	} {
		require.Equal(t, c.want, burnTogether(c.nodes, 2))
	}
}
