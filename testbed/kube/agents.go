package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"heartbed/testbed/live"
	"heartbed/workloads/agent"
)

// Agent describes the pod of an agent (package workloads/agent).
type Agent struct {
	Name, Namespace string
	Labels          map[string]string
	Image, Program  string
	Pull            corev1.PullPolicy
	Affinity        *apply.AffinityApplyConfiguration
	Tolerate        bool    // every taint of a node
	Requests        float64 // cores
	// OfNode puts it into the network of its node, with what it takes to delay
	// packets there. It has no answering port then.
	OfNode bool
}

// Apply makes the pod.
func (a Agent) Apply(ctx context.Context, client kubernetes.Interface) error {
	milli := *resource.NewMilliQuantity(int64(a.Requests*1000), resource.DecimalSI)
	container := apply.Container().WithName("agent").
		WithImage(a.Image).WithImagePullPolicy(a.Pull).WithCommand(a.Program, "agent").
		WithResources(apply.ResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceCPU: milli}))
	spec := podSpec(container).WithAffinity(a.Affinity)
	if a.OfNode {
		container.WithArgs("--answer", fmt.Sprintf("127.0.0.1:%d", agent.AnswerPort))
		ofNode(spec)
	}
	if a.Tolerate {
		spec.WithTolerations(apply.Toleration().WithOperator(corev1.TolerationOpExists))
	}
	w := Workloads{Labels: a.Labels}
	pod := apply.Pod(a.Name, a.Namespace).WithLabels(w.labels(nil)).WithSpec(spec)
	if _, err := client.CoreV1().Pods(a.Namespace).Apply(ctx, pod, Applied); err != nil {
		return fmt.Errorf("pod of agent %s: %w", a.Name, err)
	}
	return nil
}

// ofNode lets a pod of one container change how its node forwards packets.
func ofNode(spec *apply.PodSpecApplyConfiguration) {
	spec.WithHostNetwork(true)
	spec.SecurityContext = nil
	spec.Containers[0].SecurityContext = apply.SecurityContext().WithRunAsUser(0).WithAllowPrivilegeEscalation(false).
		// The second lets it run in time, whatever else runs on the node.
		WithCapabilities(apply.Capabilities().WithDrop("ALL").WithAdd("NET_ADMIN", "SYS_NICE"))
}

// ConnectAgent reaches an agent in a pod that runs, through the API server.
func ConnectAgent(ctx context.Context, config *rest.Config, pod corev1.Pod) (*agent.Client, error) {
	for {
		client, err := connectAgent(ctx, config, pod)
		if err == nil {
			return client, nil
		}
		// The agent may not listen yet.
		if pauseErr := live.Pause(ctx, look); pauseErr != nil {
			return nil, fmt.Errorf("connect to pod %s: %w", pod.Name, errors.Join(pauseErr, err))
		}
	}
}

func connectAgent(ctx context.Context, config *rest.Config, pod corev1.Pod) (*agent.Client, error) {
	t, err := forward(ctx, config, pod, agent.Port)
	if err != nil {
		return nil, err
	}
	client, err := agent.NewClient(t)
	if err != nil {
		return nil, err
	}
	pinged := make(chan error, 1)
	go func() {
		_, err := client.Ping()
		pinged <- err
	}()
	select {
	case err = <-pinged:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, client.Close(), t.said())
	}
	return client, nil
}

// tunnel is a connection to a port of a pod through the API server.
type tunnel struct {
	httpstream.Stream
	conn   httpstream.Connection
	faults chan string // what the other end says is wrong
}

// forward opens a connection to the loopback of a pod, as kubectl port-forward
// does, but without a port on this machine.
func forward(ctx context.Context, config *rest.Config, pod corev1.Pod, port int) (*tunnel, error) {
	conn, err := dialPod(ctx, config, pod)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, fmt.Sprint(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	open := func(kind string) (httpstream.Stream, error) {
		headers.Set(corev1.StreamType, kind)
		return conn.CreateStream(headers)
	}
	faults, err := open(corev1.StreamTypeError)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	data, err := open(corev1.StreamTypeData)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	t := &tunnel{Stream: data, conn: conn, faults: make(chan string, 1)}
	go func() {
		text, _ := io.ReadAll(faults) // ends with the connection
		t.faults <- strings.TrimSpace(string(text))
	}()
	return t, faults.Close()
}

// dialPod asks by WebSocket, and the older way where that is not offered.
func dialPod(ctx context.Context, config *rest.Config, pod corev1.Pod) (httpstream.Connection, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	older := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	newer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(newer, older, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	type dialed struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		done <- dialed{conn, err}
	}()
	select {
	case d := <-done:
		return d.conn, d.err
	case <-ctx.Done(): // the library takes no context
		go func() {
			if d := <-done; d.err == nil {
				d.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// Close ends the connection; closing its stream alone would only end what is
// sent.
func (t *tunnel) Close() error { return t.conn.Close() }

// said is what the other end says is wrong, if it does so soon.
func (t *tunnel) said() error {
	select {
	case text := <-t.faults:
		if text != "" {
			return errors.New(text)
		}
	case <-time.After(look):
	}
	return nil
}
