package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"heartbed/testbed/live"
)

// look lies between two looks at what is awaited.
const look = 100 * time.Millisecond

// noRoom is how long the scheduler may find no room for a pod. Its node is
// given: no other one will come.
const noRoom = 20 * time.Second

// AwaitPods waits until the named pods are ready and gives them in that order.
// An image that a node cannot get, and a node without room, end the wait.
func AwaitPods(ctx context.Context, client kubernetes.Interface, namespace string, names []string) ([]corev1.Pod, error) {
	roomAt := time.Now() // when there was room for all
	for {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		room := true
		pods, ready := make([]corev1.Pod, len(names)), 0
		var waiting []string
		for _, pod := range list.Items {
			k := slices.Index(names, pod.Name)
			if k < 0 {
				continue
			}
			if err := noImage(pod); err != nil {
				return nil, err
			}
			room = room && !unschedulable(pod)
			if pods[k] = pod; isReady(pod) {
				ready++
			} else {
				waiting = append(waiting, podState(pod))
			}
		}
		if ready == len(names) {
			return pods, nil
		}
		if room {
			roomAt = time.Now()
		} else if time.Since(roomAt) > noRoom {
			return nil, errors.New(strings.Join(waiting, "; "))
		}
		if err := live.Pause(ctx, look); err != nil {
			return nil, fmt.Errorf("%d of %d pods are ready; %s: %w", ready, len(names), strings.Join(waiting, "; "), err)
		}
	}
}

// RemovePods removes the pods that a selector of labels finds, at once, and
// waits until they are gone.
func RemovePods(ctx context.Context, client kubernetes.Interface, namespace, selector string) error {
	pods := client.CoreV1().Pods(namespace)
	now := int64(0)
	these := metav1.ListOptions{LabelSelector: selector}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, these); err != nil {
		return err
	}
	for {
		left, err := pods.List(ctx, these)
		if err != nil || len(left.Items) == 0 {
			return err
		}
		if err := live.Pause(ctx, look); err != nil {
			return fmt.Errorf("%d pods are still there: %w", len(left.Items), err)
		}
	}
}

// patience is how long an API server that is away may take to come back where
// something of ours must be removed.
const patience = time.Minute

// Patiently tries again while the API server is away, which ask says, or lets
// nobody in because it has just begun.
func Patiently(ctx context.Context, ask, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for wasAway := false; ; {
		err := do(ctx)
		if err == nil {
			return nil
		}
		isAway := ask(ctx) != nil
		if !isAway && !wasAway || live.Pause(ctx, time.Second) != nil {
			return err
		}
		wasAway = isAway
	}
}

func isReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func unschedulable(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// noImage says that a node has given up to get a container's image for now.
// Kubernetes calls the first failure ErrImagePull and tries again.
func noImage(pod corev1.Pod) error {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && slices.Contains([]string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, w.Reason) {
			return fmt.Errorf("image %s: node %s cannot get it: %s %s", c.Image, pod.Spec.NodeName, w.Reason, w.Message)
		}
	}
	return nil
}

// podState says why a pod is not ready.
func podState(pod corev1.Pod) string {
	said := []string{"pod " + pod.Name + " is " + string(pod.Status.Phase)}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			said = append(said, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			said = append(said, strings.TrimSpace(w.Reason+" "+w.Message))
		}
	}
	return strings.Join(said, ", ")
}

// NotReady names the nodes that Kubernetes does not call ready.
func NotReady(nodes []corev1.Node) (names []string) {
	for _, n := range nodes {
		ready := false
		for _, condition := range n.Status.Conditions {
			ready = ready || condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
		if !ready {
			names = append(names, n.Name)
		}
	}
	return names
}
