package kind

import (
	"fmt"
	"math"
	"strings"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"

	"heartbed/testbed"
	"heartbed/testbed/kind/image"
)

const (
	// Namespace is where the workloads are.
	Namespace = "heartbed"
	// NodeLabel is the label of a Kubernetes node that holds its name in the plan.
	NodeLabel = "heartbed/node"
)

// clusterConfig describes a control plane and one worker for each node of the
// plan to kind. machine is how many cores the host has.
func clusterConfig(p testbed.Plan, node string, machine int) *v1alpha4.Cluster {
	c := &v1alpha4.Cluster{
		TypeMeta:             v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Networking:           v1alpha4.Networking{IPFamily: v1alpha4.IPv4Family, KubeProxyMode: "nftables"},
		KubeadmConfigPatches: []string{initPatch},
		Nodes:                []v1alpha4.Node{{Role: v1alpha4.ControlPlaneRole}},
	}
	if image.IsOurs(node) {
		// Its network and images are in it, under our names.
		c.Networking.DisableDefaultCNI, c.Networking.PodSubnet = true, image.PodSubnet
		c.KubeadmConfigPatches = append(c.KubeadmConfigPatches, fmt.Sprintf(
			"kind: ClusterConfiguration\nimageRepository: %s\netcd:\n  local:\n    imageTag: %s\n", image.Repository, image.EtcdTag()),
			onCgroupV1)
	}
	if period := p.App.Server.Period.Std(); period != 0 && period != 100*time.Millisecond {
		c.KubeadmConfigPatches = append(c.KubeadmConfigPatches, fmt.Sprintf(
			"kind: KubeletConfiguration\nfeatureGates:\n  CustomCPUCFSQuotaPeriod: true\ncpuCFSQuotaPeriod: %v\n", period))
	}
	for _, n := range p.Nodes {
		c.Nodes = append(c.Nodes, v1alpha4.Node{
			Role: v1alpha4.WorkerRole, Labels: map[string]string{NodeLabel: n.Name},
			KubeadmConfigPatches: []string{joinPatch(n, machine)},
		})
	}
	return c
}

// onCgroupV1 lets kubelets of 1.35 start there; those before do so by default.
const onCgroupV1 = "kind: KubeletConfiguration\nfailCgroupV1: false\n"

// initPatch leaves CoreDNS out: services call each other by address. The list
// replaces kind's own, which skips the checks that fail in containers.
const initPatch = "kind: InitConfiguration\nskipPhases: [preflight, addon/coredns]\n"

// joinPatch reserves what the machine has beyond the node's cores, so that the
// scheduler sees what the quota leaves: a kubelet takes the host's cores for
// its own.
func joinPatch(n testbed.Node, machine int) string {
	reserved := max(0, int64(machine)*1000-int64(math.Floor(n.Cores*1000)))
	return fmt.Sprintf("kind: JoinConfiguration\nnodeRegistration:\n  kubeletExtraArgs:\n    system-reserved: cpu=%dm\n", reserved)
}

// clusterKey tells apart plans that need different clusters.
func clusterKey(p testbed.Plan, node string) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%s %v", node, p.App.Server.Period.Std())
	for _, n := range p.Nodes {
		fmt.Fprintf(&key, " %s=%g", n.Name, n.Cores)
	}
	return key.String()
}
