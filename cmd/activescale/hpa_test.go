package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"heartbed/cmd/internal/cli"
)

// scaled makes a Deployment of two cart pods, which nothing runs, and an HPA
// that wants ten requests in flight in each.
func (l *live) scaled(t *testing.T) {
	t.Helper()
	two, labels := int32(2), map[string]string{"app": "cart"}
	_, err := l.Client().AppsV1().Deployments("shop").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "cart"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "cart", Image: "none"}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	ten := resource.MustParse("10")
	_, err = l.Client().AutoscalingV2().HorizontalPodAutoscalers("shop").Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "cart"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}, MinReplicas: &two, MaxReplicas: 20,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "inbound_active_requests"}, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &ten},
			}}},
			// down at once, or a test of blindness would only see the window
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	l.serving(t, "cart-1", "cart")
	l.serving(t, "cart-2", "cart")
}

// replicasOf are those that the HPA has asked for.
func (l *live) replicasOf(t *testing.T, deployment string) int32 {
	t.Helper()
	d, err := l.Client().AppsV1().Deployments("shop").Get(t.Context(), deployment, metav1.GetOptions{})
	require.NoError(t, err)
	return *d.Spec.Replicas
}

// isBlind says whether the HPA says that it has no metric, and has said so since
// a moment.
func (l *live) isBlind(t *testing.T) bool {
	t.Helper()
	h, err := l.Client().AutoscalingV2().HorizontalPodAutoscalers("shop").Get(t.Context(), "cart", metav1.GetOptions{})
	require.NoError(t, err)
	for _, c := range h.Status.Conditions {
		if c.Type == autoscalingv2.ScalingActive {
			return c.Status == corev1.ConditionFalse && c.Reason == "FailedGetPodsMetric"
		}
	}
	return false
}

// TestHPA: a real HorizontalPodAutoscaler scales by what is pushed, and does not
// scale in for want of it (keda issues 3064 and 3065).
func TestHPA(t *testing.T) {
	l := newLive(t, nil)
	l.install(t)
	r := l.start(t)
	r.waitReady(t)
	l.Controllers(t, "horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=1s")
	one, two := pushes(t, r.grpc, "cart-1", 40), pushes(t, r.grpc, "cart-2", 30)
	l.scaled(t)
	soon(t, "seven replicas", r.log, func() bool { return l.replicasOf(t, "cart") == 7 }) // 70 requests, 10 each

	one.stop()
	two.stop()
	soon(t, "HPA that is blind", r.log, func() bool { return l.isBlind(t) })
	require.EqualValues(t, 7, l.replicasOf(t, "cart"))

	// A pod that is heard of without requests has none: that is a zero.
	pushes(t, r.grpc, "cart-1", 0)
	pushes(t, r.grpc, "cart-2", 0)
	soon(t, "two replicas", r.log, func() bool { return l.replicasOf(t, "cart") == 2 })
	require.Equal(t, cli.Done, r.end(), r.log)
}

// TestTwoReplicas share what they hear through Redis: any of them answers, one
// may go, and without Redis what only the other has heard is an error, not zero.
func TestTwoReplicas(t *testing.T) {
	redis := miniredis.RunT(t)
	redis.RequireAuth("secret")
	t.Setenv(passwordVariable, "secret")
	l := newLive(t, map[string]any{"redis": redis.Addr()})
	l.install(t)
	first, second := l.start(t), l.start(t)
	first.waitReady(t)
	second.waitReady(t)
	l.serving(t, "cart-1", "cart")
	l.serving(t, "cart-2", "cart")
	pushes(t, first.grpc, "cart-1", 40)
	moving := pushes(t, second.grpc, "cart-2", 30)
	both := func() bool {
		found, _ := l.values(t, "inbound_active_requests", "")
		return len(found) == 2 && found["cart-1"].Value == "40" && found["cart-2"].Value == "30"
	}
	soon(t, "both pods", first.log, both)
	code, stdout, stderr := activescale(t, "doctor", "--kubeconfig", l.Kubeconfig, "--namespace", "shop")
	require.Equal(t, cli.Done, code, stdout+stderr) // it has asked both

	redis.SetError("LOADING Redis is loading the dataset in memory")
	soon(t, "degraded replica", first.log, func() bool {
		status, text := first.page(t, "/readyz")
		return status == http.StatusOK && strings.Contains(text, "degraded: redis: ")
	})
	soon(t, "error", first.log, func() bool {
		_, err := l.values(t, "inbound_active_requests", "")
		return err != nil && !apierrors.IsNotFound(err)
	})
	found, err := l.values(t, "inbound_active_requests", "?labelSelector=app%3Dnone")
	require.Empty(t, found)
	require.Error(t, err)
	redis.SetError("")
	soon(t, "both pods", first.log, both)

	// One ends: its pods are known to the other, and come to it.
	second.hide(t)
	require.Equal(t, cli.Done, second.end(), second.log)
	require.True(t, both(), "no gap")
	moving.stop()
	pushes(t, first.grpc, "cart-2", 31)
	soon(t, "moved stream", first.log, func() bool {
		found, _ := l.values(t, "inbound_active_requests", "")
		return found["cart-2"].Value == "31"
	})
	require.Equal(t, cli.Done, first.end(), first.log)
}
