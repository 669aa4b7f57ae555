package kind

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"heartbed/heart/xds"
	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/workloads/service"
)

const (
	// Namespace is where the workloads are.
	Namespace = "heartbed"
	// fieldManager owns what we apply.
	fieldManager = "heartbed"

	ReplicaLabel   = "heartbed/replica"   // of a pod: its name in the plan
	ComponentLabel = "heartbed/component" // of a pod

	configFile = "replica.json"
	// probeSeconds lies between two readiness probes of a pod.
	probeSeconds = 2
)

// objectName is the name of a replica's pod: its own where Kubernetes takes it.
func objectName(l live.Layout, k int) string {
	if name := l.Replicas[k].Name; len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return fmt.Sprintf("replica-%d", k+1)
}

// serviceName is the name of the Service of a component.
func serviceName(l live.Layout, component string) string {
	for i, c := range l.Plan.App.Components {
		if c.Name == component && len(validation.IsDNS1035Label(c.Name)) != 0 {
			return fmt.Sprintf("component-%d", i+1)
		}
	}
	return component
}

// serviceOf is the Service of a component, which kube-proxy balances.
func serviceOf(l live.Layout, component string) *apply.ServiceApplyConfiguration {
	return apply.Service(serviceName(l, component), Namespace).
		WithLabels(map[string]string{ComponentLabel: serviceName(l, component)}).
		WithSpec(apply.ServiceSpec().
			WithSelector(map[string]string{ComponentLabel: serviceName(l, component)}).
			WithPorts(apply.ServicePort().WithName("grpc").WithPort(live.GRPCPort).WithTargetPort(intstr.FromInt32(live.GRPCPort))))
}

// configOf is the configuration of a replica. services are the addresses of
// the Services by component.
func configOf(l live.Layout, k int, services map[string]string) (*apply.ConfigMapApplyConfiguration, error) {
	r := l.Replicas[k]
	gateway := r.Component == testbed.GatewayComponent
	port := live.GRPCPort
	if gateway {
		port = live.GatewayPort
	}
	config, err := json.Marshal(service.Config{
		Replica: r.Name, Component: r.Component, Node: r.Node, App: l.Plan.App,
		Listen: fmt.Sprintf("0.0.0.0:%d", port), Metrics: fmt.Sprintf("0.0.0.0:%d", live.MetricsPort),
		Slowness: l.Nodes[r.On].Slowness, Connections: l.Plan.Network.Connections, ProxyThreads: l.Plan.Network.ProxyThreads,
		Services: services, Gateway: gateway, BehindGateway: l.Plan.Entry.Gateway != "",
	})
	if err != nil {
		return nil, fmt.Errorf("encode configuration of replica %s: %w", r.Name, err)
	}
	return apply.ConfigMap(objectName(l, k), Namespace).WithData(map[string]string{configFile: string(config)}), nil
}

// podOf is the pod of a replica on the node that the plan gives it.
func podOf(l live.Layout, k int, image, program string, controller netip.AddrPort) (*apply.PodApplyConfiguration, error) {
	r := l.Replicas[k]
	bootstrap, err := xds.Bootstrap(controller.String(), r.Name)
	if err != nil {
		return nil, err
	}
	server, node := l.Plan.App.Server, l.Nodes[r.On]
	procs := service.Procs(runtime.NumCPU(), server, node.Cores, server.LimitCores)
	container := apply.Container().WithName("replica").WithImage(image).WithImagePullPolicy(corev1.PullNever).
		WithCommand("/"+program, "serve", "--config", "/config/"+configFile).
		WithEnv(
			apply.EnvVar().WithName(xds.BootstrapEnv).WithValue(string(bootstrap)),
			// The quota of the node is above what the pod can see of its own.
			apply.EnvVar().WithName("GOMAXPROCS").WithValue(strconv.Itoa(procs))).
		WithPorts(apply.ContainerPort().WithName("metrics").WithContainerPort(live.MetricsPort)).
		WithReadinessProbe(apply.Probe().WithPeriodSeconds(probeSeconds).WithTimeoutSeconds(5).WithFailureThreshold(10).
			WithHTTPGet(apply.HTTPGetAction().WithPath("/ready").WithPort(intstr.FromInt32(live.MetricsPort)))).
		WithVolumeMounts(apply.VolumeMount().WithName("config").WithMountPath("/config")).
		WithResources(resourcesOf(l, r))
	onNode := apply.NodeSelectorRequirement().WithKey(NodeLabel).WithOperator(corev1.NodeSelectorOpIn).WithValues(r.Node)
	return apply.Pod(objectName(l, k), Namespace).
		WithLabels(map[string]string{ReplicaLabel: objectName(l, k), ComponentLabel: serviceName(l, r.Component)}).
		WithAnnotations(map[string]string{
			"prometheus.io/scrape": "true", "prometheus.io/port": strconv.Itoa(live.MetricsPort), "prometheus.io/path": "/metrics",
		}).
		WithSpec(apply.PodSpec().WithContainers(container).
			WithAutomountServiceAccountToken(false).WithEnableServiceLinks(false).WithTerminationGracePeriodSeconds(1).
			WithVolumes(apply.Volume().WithName("config").WithConfigMap(apply.ConfigMapVolumeSource().WithName(objectName(l, k)))).
			WithAffinity(apply.Affinity().WithNodeAffinity(apply.NodeAffinity().
				WithRequiredDuringSchedulingIgnoredDuringExecution(apply.NodeSelector().
					WithNodeSelectorTerms(apply.NodeSelectorTerm().WithMatchExpressions(onNode)))))), nil
}

// resourcesOf requests an equal part of the node for each of its replicas, so
// that they compete on equal terms, and limits to the plan's quota.
func resourcesOf(l live.Layout, r live.Replica) *apply.ResourceRequirementsApplyConfiguration {
	here := 0
	for _, other := range l.Replicas {
		if other.On == r.On {
			here++
		}
	}
	request := max(1, int64(math.Floor(l.Nodes[r.On].Cores*1000/float64(here))))
	need := apply.ResourceRequirements()
	if limit := int64(math.Floor(l.Limit(r).Cores * 1000)); limit > 0 {
		need.WithLimits(corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(limit, resource.DecimalSI)})
		request = min(request, limit)
	}
	return need.WithRequests(corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(request, resource.DecimalSI)})
}

// applied are the options of every server-side apply.
var applied = metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
