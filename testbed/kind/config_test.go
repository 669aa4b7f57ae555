package kind

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"

	"heartbed/testbed"
	"heartbed/testbed/kind/image"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
)

func TestClusterConfig(t *testing.T) {
	p := testbedtest.Plan()
	p.Nodes = []testbed.Node{{Name: "w1", Cores: 0.25, Slowness: 1}, {Name: "w2", Cores: 8, Slowness: 1}}
	c := clusterConfig(p, image.Name(), 2)
	require.Len(t, c.Nodes, 3)
	require.Equal(t, v1alpha4.ControlPlaneRole, c.Nodes[0].Role)
	require.Equal(t, map[string]string{NodeLabel: "w1"}, c.Nodes[1].Labels)
	require.Contains(t, c.Nodes[1].KubeadmConfigPatches[0], "system-reserved: cpu=1750m", "the scheduler sees a quarter of a core")
	require.Contains(t, c.Nodes[2].KubeadmConfigPatches[0], "system-reserved: cpu=0m", "no machine has more than it has")
	require.True(t, c.Networking.DisableDefaultCNI)
	require.Len(t, c.KubeadmConfigPatches, 3)

	p.App.Server.Period = workloads.Duration(20 * time.Millisecond)
	published := clusterConfig(p, "kindest/node:v1", 2)
	require.False(t, published.Networking.DisableDefaultCNI, "kind's own image has kind's network")
	require.Contains(t, published.KubeadmConfigPatches[1], "cpuCFSQuotaPeriod: 20ms")
}

func TestClusterKeyIsOfTheNodes(t *testing.T) {
	p := testbedtest.Plan()
	key := clusterKey(p, "image")
	p.RPS, p.Seed = 7, 7
	require.Equal(t, key, clusterKey(p, "image"), "load and delays do not need another cluster")
	p.Nodes[0].Cores = 0.5
	require.NotEqual(t, key, clusterKey(p, "image"))
}

func TestRefusesWhatItCannotPlay(t *testing.T) {
	p := testbedtest.Plan()
	p.App.Server.LimitCores = 0.5
	p.Antagonists = []testbed.Antagonist{{Nodes: []string{"n1"}, StealCores: 0.5, BurstMin: 1, BurstMax: 1, PauseMin: 1, PauseMax: 1}}
	_, err := (&Backend{}).Start(t.Context(), p)
	require.ErrorContains(t, err, "antagonist 1: found stealCores with limitCores")
}
