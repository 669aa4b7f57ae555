package provider

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/activescale/store"
)

// alive gives the pods that can push, in order of names. One that terminates
// keeps some old requests and is not going to serve more (kubernetes issues
// 84142, 72775); one that has ended serves none. One that is pending has no
// proxy yet: it is missing, as the HPA expects, and a store that fails is not
// asked for it.
func alive(found []*corev1.Pod) []*corev1.Pod {
	live := make([]*corev1.Pod, 0, len(found))
	for _, pod := range found {
		switch pod.Status.Phase {
		case corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded:
			continue
		}
		if pod.DeletionTimestamp == nil {
			live = append(live, pod)
		}
	}
	slices.SortFunc(live, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return live
}

func key(pod *corev1.Pod) store.Pod { return store.Pod{Namespace: pod.Namespace, Name: pod.Name} }

// Trim is a transform for the informer of pods that keeps what a provider and a
// Cost by node read, a tenth of a pod. It changes the object; others pass.
func Trim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	annotations := map[string]string(nil)
	if cost, ok := pod.Annotations[CostAnnotation]; ok {
		annotations = map[string]string{CostAnnotation: cost}
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Labels: pod.Labels, Annotations: annotations, DeletionTimestamp: pod.DeletionTimestamp,
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase}
	return pod, nil
}
