package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// workloads of the contract's plan, with names that Kubernetes does not take.
func workloads() *Workloads {
	p := testbedtest.Plan()
	p.App.Components[0].Name, p.App.Entry = "Front_End", "Front_End"
	l := live.NewLayout(p)
	l.Replicas[1].Name = "Front_End.1"
	return &Workloads{
		Layout: &l, Labels: map[string]string{"heartbed/run": "1"},
		Hosts: []Host{{Label: "zone", Value: "x", CPUs: 2, Requests: 1}, {Label: "zone", Value: "y", CPUs: 2, Requests: 0.5}},
	}
}

func TestNamesThatKubernetesTakes(t *testing.T) {
	w := workloads()
	require.Equal(t, "gateway", w.objectName(0))
	require.Equal(t, "replica-2", w.objectName(1))
	require.Equal(t, "component-1", w.serviceName("Front_End"))
	require.Equal(t, "b", w.serviceName("b"))
	s := w.service("Front_End")
	require.Equal(t, "component-1", *s.Name)
	require.Equal(t, "1", s.Spec.Selector["heartbed/run"], "another run's pods are not the Service's")
}

// Replicas of a node compete on equal terms, below their quota.
func TestRequestsAreEqualParts(t *testing.T) {
	w := workloads()
	milli := func(k int) int64 {
		need := w.resources(w.Layout.Replicas[k])
		request := (*need.Requests)[corev1.ResourceCPU]
		return request.MilliValue()
	}
	require.EqualValues(t, 333, milli(1), "gateway, a1 and b1 share a core")
	require.EqualValues(t, 250, milli(2), "a2 and b2 share half of one")
	w.Layout.Plan.App.Server.LimitCores = 0.1
	require.EqualValues(t, 100, milli(1))
	limit := (*w.resources(w.Layout.Replicas[1]).Limits)[corev1.ResourceCPU]
	require.EqualValues(t, 100, limit.MilliValue())
}

func TestPodKeepsToItsHostAndToTheStrictestStandard(t *testing.T) {
	pod, err := workloads().pod(3)
	require.NoError(t, err)
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Equal(t, []string{"x"}, terms[0].MatchExpressions[0].Values)
	require.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	require.False(t, *pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation)
	require.EqualValues(t, "1", pod.Labels["heartbed/run"])
}

func TestStateOfPods(t *testing.T) {
	waiting := func(reason string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a1"}, Spec: corev1.PodSpec{NodeName: "w1"},
			Status: corev1.PodStatus{
				Phase:             corev1.PodPending,
				Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: insufficient cpu"}},
				ContainerStatuses: []corev1.ContainerStatus{{Image: "ours:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}}}},
			},
		}
	}
	require.NoError(t, noImage(waiting("ErrImagePull")), "Kubernetes tries again")
	require.EqualError(t, noImage(waiting("ImagePullBackOff")), "image ours:1: node w1 cannot get it: ImagePullBackOff no such image")
	require.Equal(t, "pod a1 is Pending, 0/3 nodes are available: insufficient cpu, ErrImagePull no such image", podState(waiting("ErrImagePull")))
}

func TestEndedNamesWhatIsNotWhatWasReady(t *testing.T) {
	running := func(id string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a1", UID: "pod"},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				ContainerID: id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}}},
		}
	}
	was := []corev1.Pod{running("1")}
	require.NoError(t, Ended(was, was))
	require.EqualError(t, Ended(was, nil), "pod a1 was deleted")
	again := running("2")
	again.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	require.EqualError(t, Ended(was, []corev1.Pod{again}), "the container of pod a1 ended with exit code 137, OOMKilled")
	other := running("1")
	other.UID = "other"
	require.EqualError(t, Ended(was, []corev1.Pod{other}), "pod a1 was deleted")
}
