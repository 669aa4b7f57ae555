package istiotest

import (
	"context"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Istiod runs a real istiod on the cluster until the end of the test, and
// gives the address at which it speaks xDS, without TLS. InstallIstio comes
// first.
func (c *Cluster) Istiod(t testing.TB) string {
	t.Helper()
	path, err := istiod()
	if err != nil {
		t.Fatal(err)
	}
	c.CreateNamespace(t, "istio-system")
	free := ports(t, 4)
	at := func(i int) string { return "127.0.0.1:" + free[i] }
	p := start(t, c.dir, "istiod", []string{"POD_NAMESPACE=istio-system", "POD_NAME=istiod", "ENABLE_CA_SERVER=true"}, path, "discovery",
		"--kubeconfig", c.Kubeconfig, "--httpAddr", at(0), "--grpcAddr", at(1), "--monitoringAddr", at(2),
		"--httpsAddr", "", "--secureGRPCAddr", "", "--ctrlz_port", free[3])
	p.wait(t, func(ctx context.Context) error {
		return answers(ctx, http.DefaultClient, "http://"+at(0)+"/ready")
	})
	return at(1)
}

// CreateNamespace makes a namespace.
func (c *Cluster) CreateNamespace(t testing.TB, name string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	client := dynamic.NewForConfigOrDie(c.Config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
}
