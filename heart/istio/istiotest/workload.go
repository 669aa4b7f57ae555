package istiotest

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Pod is one that nothing runs: a test may serve it.
type Pod struct {
	Namespace, Name, Node string
	Labels                map[string]string
	NotReady              bool
	// Address is where it serves the Service of that name; none = no endpoint.
	Service string
	Address netip.AddrPort
}

// Outside is an address of this machine that may stand in an EndpointSlice,
// which the loopback address may not.
func Outside(t testing.TB) netip.Addr {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
			return p.Addr()
		}
	}
	t.Skip("this machine has no IPv4 address but the loopback one")
	return netip.Addr{}
}

// Client is one for Kubernetes' own objects.
func (c *Cluster) Client() kubernetes.Interface { return kubernetes.NewForConfigOrDie(c.Config) }

// CreateService makes a Service of the pods with the label app, whose port
// speaks gRPC. Nothing writes its endpoints but CreatePod. istiod notices new
// labels of the pods that the selector finds, and of no others.
func (c *Cluster) CreateService(t testing.TB, namespace, name string, port int32) {
	t.Helper()
	_, err := c.Client().CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "grpc", Port: port}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create service %s: %v", name, err)
	}
}

// CreatePod makes a pod that is on its node, with the status that a kubelet
// would give it, and its endpoint in a slice of its own: the port is the
// slice's, and pods of a test differ in nothing else.
func (c *Cluster) CreatePod(t testing.TB, p Pod) {
	t.Helper()
	client := c.Client()
	pod, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create pod %s: %v", p.Name, err)
	}
	ready := corev1.ConditionTrue
	if p.NotReady {
		ready = corev1.ConditionFalse
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}
	if p.Address.IsValid() {
		pod.Status.PodIP = p.Address.Addr().String()
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	}
	if pod, err = client.CoreV1().Pods(p.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("set status of pod %s: %v", p.Name, err)
	}
	if p.Service == "" {
		return
	}
	name, port, isReady := "grpc", int32(p.Address.Port()), !p.NotReady
	_, err = client.DiscoveryV1().EndpointSlices(p.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s", p.Service, p.Name), Labels: map[string]string{discoveryv1.LabelServiceName: p.Service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{p.Address.Addr().String()}, NodeName: &p.Node, Conditions: discoveryv1.EndpointConditions{Ready: &isReady},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: pod.UID},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create endpoint of pod %s: %v", p.Name, err)
	}
}
