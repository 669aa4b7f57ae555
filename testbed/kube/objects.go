package kube

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	apply "k8s.io/client-go/applyconfigurations/core/v1"

	"heartbed/heart/xds"
	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/workloads/service"
)

const (
	configFile = "replica.json"
	// A pod is probed every startSeconds until it is ready, and then seldom: the
	// answers are CPU time of the replica.
	startSeconds, probeSeconds = 1, 5
)

// objectName is the name of a replica's pod and configuration: its own where
// Kubernetes takes it.
func (w *Workloads) objectName(k int) string {
	if name := w.Layout.Replicas[k].Name; len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return fmt.Sprintf("replica-%d", k+1)
}

// serviceName is the name of the Service of a component.
func (w *Workloads) serviceName(component string) string {
	for i, c := range w.Layout.Plan.App.Components {
		if c.Name == component && len(validation.IsDNS1035Label(c.Name)) != 0 {
			return fmt.Sprintf("component-%d", i+1)
		}
	}
	return component
}

// service is the Service of a component, which kube-proxy balances.
func (w *Workloads) service(component string) *apply.ServiceApplyConfiguration {
	own := map[string]string{ComponentLabel: w.serviceName(component)}
	return apply.Service(w.serviceName(component), w.Namespace).
		WithLabels(w.labels(own)).
		WithSpec(apply.ServiceSpec().
			WithSelector(w.labels(own)).
			WithPorts(apply.ServicePort().WithName("grpc").WithPort(live.GRPCPort).WithTargetPort(intstr.FromInt32(live.GRPCPort))))
}

// config is the configuration of a replica. services are the addresses of the
// Services by component.
func (w *Workloads) config(k int, services map[string]string) (*apply.ConfigMapApplyConfiguration, error) {
	l, r := w.Layout, w.Layout.Replicas[k]
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
	return apply.ConfigMap(w.objectName(k), w.Namespace).WithLabels(w.labels(nil)).
		WithData(map[string]string{configFile: string(config)}), nil
}

// pod is the pod of a replica on the node that the plan gives it.
func (w *Workloads) pod(k int) (*apply.PodApplyConfiguration, error) {
	r := w.Layout.Replicas[k]
	bootstrap, err := xds.Bootstrap(w.XDS.String(), r.Name)
	if err != nil {
		return nil, err
	}
	server, node, host := w.Layout.Plan.App.Server, w.Layout.Nodes[r.On], w.Hosts[r.On]
	procs := service.Procs(host.CPUs, server, node.Cores, server.LimitCores)
	container := apply.Container().WithName("replica").WithImage(w.Image).WithImagePullPolicy(w.Pull).
		WithCommand(w.Program, "serve", "--config", "/config/"+configFile).
		WithEnv(
			apply.EnvVar().WithName(xds.BootstrapEnv).WithValue(string(bootstrap)),
			// The quota of the node is above what the pod can see of its own.
			apply.EnvVar().WithName("GOMAXPROCS").WithValue(strconv.Itoa(procs))).
		WithPorts(apply.ContainerPort().WithName("metrics").WithContainerPort(live.MetricsPort)).
		WithStartupProbe(ready(startSeconds, 60)).WithReadinessProbe(ready(probeSeconds, 10)).
		WithVolumeMounts(apply.VolumeMount().WithName("config").WithMountPath("/config")).
		WithResources(w.resources(r))
	spec := podSpec(container).WithAffinity(host.Affinity()).
		WithVolumes(apply.Volume().WithName("config").WithConfigMap(apply.ConfigMapVolumeSource().WithName(w.objectName(k))))
	return apply.Pod(w.objectName(k), w.Namespace).
		WithLabels(w.labels(map[string]string{ReplicaLabel: w.objectName(k), ComponentLabel: w.serviceName(r.Component)})).
		WithAnnotations(map[string]string{
			"prometheus.io/scrape": "true", "prometheus.io/port": strconv.Itoa(live.MetricsPort), "prometheus.io/path": "/metrics",
		}).
		WithSpec(spec), nil
}

// nobody owns nothing.
const nobody = 65534

// podSpec is a pod of one container that asks nothing of the cluster. It keeps
// to the strictest of the Pod Security Standards, which a namespace may enforce.
func podSpec(c *apply.ContainerApplyConfiguration) *apply.PodSpecApplyConfiguration {
	c.WithSecurityContext(apply.SecurityContext().WithAllowPrivilegeEscalation(false).
		WithCapabilities(apply.Capabilities().WithDrop("ALL")))
	return apply.PodSpec().WithContainers(c).
		WithAutomountServiceAccountToken(false).WithEnableServiceLinks(false).WithTerminationGracePeriodSeconds(1).
		WithSecurityContext(apply.PodSecurityContext().WithRunAsNonRoot(true).WithRunAsUser(nobody).WithRunAsGroup(nobody).
			WithSeccompProfile(apply.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault)))
}

// ready asks a replica whether it is, so often and until so many failures in a row.
func ready(seconds, failures int32) *apply.ProbeApplyConfiguration {
	return apply.Probe().WithPeriodSeconds(seconds).WithTimeoutSeconds(5).WithFailureThreshold(failures).
		WithHTTPGet(apply.HTTPGetAction().WithPath("/ready").WithPort(intstr.FromInt32(live.MetricsPort)))
}

// Affinity binds a pod to the host.
func (h Host) Affinity() *apply.AffinityApplyConfiguration {
	here := apply.NodeSelectorRequirement().WithKey(h.Label).WithOperator(corev1.NodeSelectorOpIn).WithValues(h.Value)
	return apply.Affinity().WithNodeAffinity(apply.NodeAffinity().
		WithRequiredDuringSchedulingIgnoredDuringExecution(apply.NodeSelector().
			WithNodeSelectorTerms(apply.NodeSelectorTerm().WithMatchExpressions(here))))
}

// resources requests an equal part of the host for each of its replicas, so
// that they compete on equal terms, and limits to the plan's quota.
func (w *Workloads) resources(r live.Replica) *apply.ResourceRequirementsApplyConfiguration {
	here := 0
	for _, other := range w.Layout.Replicas {
		if other.On == r.On {
			here++
		}
	}
	request := max(1, int64(math.Floor(w.Hosts[r.On].Requests*1000/float64(here))))
	need := apply.ResourceRequirements()
	if limit := int64(math.Floor(w.Layout.Limit(r).Cores * 1000)); limit > 0 {
		need.WithLimits(corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(limit, resource.DecimalSI)})
		request = min(request, limit)
	}
	return need.WithRequests(corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(request, resource.DecimalSI)})
}
