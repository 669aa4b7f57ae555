package kind

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"heartbed/testbed/kube"
	"heartbed/testbed/live"
	"heartbed/workloads/agent"
)

// Options.LoadPod puts the load generator into a pod on the node of the control
// plane, which has no quota. Latency then has on its way all that a client in
// the cluster has. A container may not run before others as this process does:
// on a busy machine the generator waits for a CPU, and the noise floor says so.

const loadPod = "heartbed-load"

// loadRequests are cores, a weight against the control plane's own pods.
const loadRequests = 0.5

// loader is the pod of the load generator.
type loader struct {
	wanted bool
	pod    corev1.Pod
	client *agent.Client
}

func (s *session) createLoader(ctx context.Context) error {
	if !s.loader.wanted {
		return nil
	}
	return kube.Agent{
		Name: loadPod, Namespace: Namespace, Image: s.image.Name, Program: "/" + s.program, Pull: corev1.PullNever,
		Requests: loadRequests, Tolerate: true,
		Affinity: kube.Host{Label: corev1.LabelHostname, Value: s.cluster.control.name}.Affinity(),
	}.Apply(ctx, s.cluster.client)
}

// reachLoader connects to the load generator, and finds its network.
func (s *session) reachLoader(ctx context.Context) error {
	if !s.loader.wanted {
		return nil
	}
	pods, err := kube.AwaitPods(ctx, s.cluster.client, Namespace, []string{loadPod})
	if err != nil {
		return err
	}
	s.loader.pod = pods[0]
	if s.Layout.Client, err = kube.Address(pods[0]); err != nil {
		return err
	}
	_, pid, err := findProcess(s.cluster.control, pods[0])
	if err != nil {
		return fmt.Errorf("load generator: %w", err)
	}
	s.Dial = live.DialIn(fmt.Sprintf("/proc/%d/ns/net", pid))
	if s.loader.client, err = kube.ConnectAgent(ctx, s.cluster.config, pods[0]); err != nil {
		return err
	}
	s.Offer = s.loader.client.Load
	s.Notes = append(s.Notes, "the load generator is a pod and competes with the replicas for CPU")
	return nil
}

// watch reports what makes a run worthless. See live.WatchFunc.
func (s *session) watch(ctx context.Context, report func(error)) (unwatch func()) {
	pods := s.workloads.Pods
	if s.loader.client != nil {
		pods = append(pods[:len(pods):len(pods)], s.loader.pod)
	}
	return kube.Watch(ctx, s.cluster.client, pods, report)
}

// close ends the connection; the pod goes with the others.
func (l loader) close() error {
	if l.client == nil {
		return nil
	}
	if err := l.client.Close(); !errors.Is(err, agent.ErrLost) {
		return err
	}
	return nil
}
