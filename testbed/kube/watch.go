package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"heartbed/testbed/live"
)

// watchEvery lies between two looks at the pods; the API server answers from
// memory.
const watchEvery = time.Second

// Watch reports the first container of pods, as they were when they were
// ready, that has ended since. See live.WatchFunc.
func Watch(ctx context.Context, client kubernetes.Interface, pods []corev1.Pod, report func(error)) (unwatch func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for live.Pause(ctx, watchEvery) == nil {
			list, err := client.CoreV1().Pods(pods[0].Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				continue // the API server may be away; pods go on without it
			}
			if err := Ended(pods, list.Items); err != nil {
				report(err)
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
}

// Ended names the first container that is not the one that was ready.
func Ended(ready, now []corev1.Pod) error {
	byName := map[string]corev1.Pod{}
	for _, pod := range now {
		byName[pod.Name] = pod
	}
	for _, was := range ready {
		is, there := byName[was.Name]
		if !there || is.UID != was.UID {
			return fmt.Errorf("pod %s was deleted", was.Name)
		}
		for _, c := range is.Status.ContainerStatuses {
			if c.ContainerID == was.Status.ContainerStatuses[0].ContainerID && c.State.Running != nil {
				continue
			}
			how := "for an unknown reason"
			for _, state := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
				if state != nil {
					how = fmt.Sprintf("with exit code %d, %s", state.ExitCode, state.Reason)
				}
			}
			return fmt.Errorf("the container of pod %s ended %s", was.Name, how)
		}
	}
	return nil
}
