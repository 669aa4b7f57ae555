package istiotest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Cluster is an API server on an etcd of its own, for one test. Admission
// asks for no service accounts, because no controller makes any.
type Cluster struct {
	Config     *rest.Config // of an administrator
	Kubeconfig string       // file with the same

	dir    string
	server *Process
	start  func() *Process // of the API server
}

// token of the administrator. The server listens on the loopback address only.
const token = "istiotest"

// Check says whether Start can work here: an error wraps
// errors.ErrUnsupported and says what is missing.
func Check() error {
	_, _, err := servers()
	return err
}

// CheckIstiod says the same of Start, Cluster.Istiod and Enclose.
func CheckIstiod() error {
	_, err := istiod()
	return errors.Join(Check(), err, CheckEnclose())
}

func servers() (etcd, kube string, err error) {
	etcd, errEtcd := program("image/etcd-*/etcd", buildImage)
	kube, errKube := program("image/kube-*/kube", buildImage)
	return etcd, kube, errors.Join(errEtcd, errKube)
}

// Start gives an API server that ends with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	etcd, kube, err := servers()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{dir: t.TempDir()}
	free := ports(t, 3)
	store := "http://127.0.0.1:" + free[0]
	start(t, c.dir, "etcd", nil, etcd, "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", store, "--advertise-client-urls", store, "--listen-peer-urls", "http://127.0.0.1:"+free[1])
	c.writeFiles(t)
	c.writeProxyPair(t)
	c.start = func() *Process {
		return start(t, c.dir, "kube-apiserver", nil, kube, append([]string{"kube-apiserver",
			"--etcd-servers", store, "--bind-address", "127.0.0.1", "--secure-port", free[2], "--cert-dir", c.file("certs"),
			"--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
			"--token-auth-file", c.file("tokens"), "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.96.0.0/16",
			"--service-account-issuer", "https://istiotest", "--service-account-key-file", c.file("key.pem"), "--service-account-signing-key-file", c.file("key.pem"),
			"--disable-admission-plugins", "ServiceAccount"}, c.aggregation()...)...)
	}
	c.Config = &rest.Config{
		Host: "https://127.0.0.1:" + free[2], BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.file("certs/apiserver.crt")},
	}
	c.server = c.start()
	c.WaitReady(t)
	c.writeKubeconfig(t)
	return c
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

// WaitReady waits until the API server serves.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	c.server.wait(t, func(ctx context.Context) error {
		config := rest.CopyConfig(c.Config)
		config.Timeout = 2 * time.Second
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		return answers(ctx, client, c.Config.Host+"/readyz")
	})
}

// StopServer ends the API server. Its data stays.
func (c *Cluster) StopServer() { c.server.Stop() }

// StartServer starts it again at the same address.
func (c *Cluster) StartServer(t testing.TB) {
	t.Helper()
	c.server = c.start()
	c.WaitReady(t)
}

// writeFiles makes what the API server reads: the administrator's token and
// the key that signs service accounts' tokens.
func (c *Cluster) writeFiles(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(c.file("tokens"), []byte(token+",admin,admin,system:masters\n"), 0o600),
		os.WriteFile(c.file("key.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) writeKubeconfig(t testing.TB) {
	t.Helper()
	c.Kubeconfig = c.file("kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthority: c.Config.CAFile}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	config.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*config, c.Kubeconfig); err != nil {
		t.Fatal(err)
	}
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// InstallIstio applies Istio's CustomResourceDefinitions and waits until they
// are served. A test without network may lack them: see module.
func (c *Cluster) InstallIstio(t testing.TB) {
	t.Helper()
	dir, err := module(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(dir, "manifests", "charts", "base", "files", "crd-all.gen.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	client := dynamic.NewForConfigOrDie(c.Config).Resource(definitions)
	var names []string
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var u unstructured.Unstructured
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("read %s: %v", file.Name(), err)
		}
		if u.Object == nil {
			continue
		}
		if _, err := client.Create(t.Context(), &u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create definition %s: %v", u.GetName(), err)
		}
		names = append(names, u.GetName())
	}
	for _, name := range names {
		c.server.wait(t, func(ctx context.Context) error { return established(ctx, client, name) })
	}
}

func established(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	u, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == "Established" && m["status"] == "True" {
			return err
		}
	}
	return fmt.Errorf("definition %s is not established", name)
}
