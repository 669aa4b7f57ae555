package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

var ours = types.NamespacedName{Namespace: "monitoring", Name: "activescale"}

// registered is an APIService that points to a Service.
func registered(name, namespace, service string) *registrationv1.APIService {
	return &registrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       registrationv1.APIServiceSpec{Service: &registrationv1.ServiceReference{Namespace: namespace, Name: service}},
		Status:     registrationv1.APIServiceStatus{Conditions: []registrationv1.APIServiceCondition{{Type: registrationv1.Available, Status: registrationv1.ConditionTrue}}},
	}
}

// keda issue 470, prometheus-adapter issue 367: two adapters take the API from
// each other.
func TestAnothersAPIIsNotTakenOver(t *testing.T) {
	helm := registered(apiNames[0], "monitoring", "prometheus-adapter")
	helm.Annotations = map[string]string{"meta.helm.sh/release-name": "adapter", "meta.helm.sh/release-namespace": "monitoring"}
	local := registered(apiNames[1], "", "")
	local.Spec.Service = nil
	for name, c := range map[string]struct {
		there []*registrationv1.APIService
		own   types.NamespacedName
		says  []string
	}{
		"free":         {own: ours},
		"free, no own": {},
		"ours":         {there: []*registrationv1.APIService{registered(apiNames[0], ours.Namespace, ours.Name), registered(apiNames[1], ours.Namespace, ours.Name)}, own: ours},
		"one of Helm's": {there: []*registrationv1.APIService{helm}, own: ours, says: []string{
			"v1beta1.custom.metrics.k8s.io points to monitoring/prometheus-adapter, expected monitoring/activescale", "helm uninstall adapter --namespace monitoring",
		}},
		"another namespace": {there: []*registrationv1.APIService{registered(apiNames[1], "other", ours.Name)}, own: ours, says: []string{
			"points to other/activescale", "kubectl delete apiservice v1beta2.custom.metrics.k8s.io",
		}},
		"the API server's": {there: []*registrationv1.APIService{local}, own: ours, says: []string{"points to the API server itself"}},
		"no own named":     {there: []*registrationv1.APIService{registered(apiNames[0], ours.Namespace, ours.Name)}, says: []string{"expected none (--service says which"}},
	} {
		t.Run(name, func(t *testing.T) {
			client := aggregator.NewClientset()
			for _, a := range c.there {
				require.NoError(t, client.Tracker().Add(a))
			}
			all, err := readAPIs(t.Context(), client.ApiregistrationV1().APIServices())
			require.NoError(t, err)
			require.Len(t, all, 2)
			err = foreign(all, c.own)
			if c.says == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errForeign)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

func TestRegistrationGetsItsAuthority(t *testing.T) {
	client := aggregator.NewClientset()
	apis := client.ApiregistrationV1().APIServices()
	bundle := []byte("one")
	r := newRegistration(apis, ours, func(context.Context) ([]byte, error) { return bundle, nil }, slog.New(slog.DiscardHandler))
	require.Equal(t, []string{"the API's registration has not been read yet"}, r.degraded())
	require.False(t, r.look(t.Context()))
	require.Contains(t, r.degraded()[0], "v1beta1.custom.metrics.k8s.io is not registered")

	for _, name := range apiNames { // Helm makes them after the pods
		require.NoError(t, client.Tracker().Add(registered(name, ours.Namespace, ours.Name)))
	}
	require.False(t, r.look(t.Context()), "first it is written")
	require.True(t, r.look(t.Context()))
	require.Empty(t, r.degraded())
	bundle = []byte("two")
	require.False(t, r.look(t.Context()))
	for _, name := range apiNames {
		a, err := apis.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "two", string(a.Spec.CABundle))
	}

	other := registered(apiNames[0], "monitoring", "prometheus-adapter") // takes it while we run
	require.NoError(t, client.Tracker().Update(registrationv1.SchemeGroupVersion.WithResource("apiservices"), other, ""))
	require.False(t, r.look(t.Context()))
	require.Contains(t, r.degraded()[0], "belongs to another adapter")
	a, err := apis.Get(t.Context(), apiNames[0], metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, a.Spec.CABundle, "nothing is written into another's")
}

func TestServiceFlag(t *testing.T) {
	for text, want := range map[string]types.NamespacedName{"": {}, "a/b": {Namespace: "a", Name: "b"}} {
		got, err := parseService(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"a", "/b", "a/", "a/b/c"} {
		_, err := parseService(text)
		require.ErrorContains(t, err, "expected NAMESPACE/NAME")
	}
}

func TestCertificateIsSharedAndRenewed(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "activescale-api"}})
	secrets := client.CoreV1().Secrets("monitoring")
	s := shared{secrets, "activescale-api", "activescale.monitoring.svc"}
	_, err := s.bundle(t.Context())
	require.ErrorContains(t, err, "has no ca.crt")

	first, key, err := s.pair(t.Context(), now)
	require.NoError(t, err)
	again, sameKey, err := s.pair(t.Context(), now.Add(8*365*24*time.Hour))
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, key, sameKey)
	bundle, err := s.bundle(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, bundle)

	// A year before its end: a replica that has not started anew still serves
	// with the one before.
	later := now.Add(certificateLife - renewBefore + time.Hour)
	second, _, err := s.pair(t.Context(), later)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	bundle, err = s.bundle(t.Context())
	require.NoError(t, err)
	require.Equal(t, string(second)+string(first), string(bundle))
	require.Equal(t, string(second), string(stillValid(bundle, now.Add(certificateLife+time.Hour))))

	// another name of the Service
	third, _, err := shared{secrets, s.name, "x.monitoring.svc"}.pair(t.Context(), later)
	require.NoError(t, err)
	require.NotEqual(t, second, third)

	_, _, err = shared{secrets, "none", s.host}.pair(t.Context(), now)
	require.ErrorContains(t, err, "--certificate-secret")
	secret, err := secrets.Get(t.Context(), s.name, metav1.GetOptions{})
	require.NoError(t, err)
	secret.Data[corev1.TLSCertKey] = []byte("somebody's notes")
	_, err = secrets.Update(t.Context(), secret, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, _, err = s.pair(t.Context(), now)
	require.ErrorContains(t, err, "empty the Secret")
}
