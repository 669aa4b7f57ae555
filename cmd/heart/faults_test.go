package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"heartbed/cmd/internal/cli"
	"heartbed/heart/prom"
)

var virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}

// TestFaultsOnAnAPIServer goes through what may be wrong with a cluster. Each
// fault is told in words, and the table in force stays.
func TestFaultsOnAnAPIServer(t *testing.T) {
	requirePrograms(t)
	l := newLive(t, "", nil)
	l.fails(t, "install Istio")

	l.InstallIstio(t)
	theirs := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": map[string]any{"name": "theirs"},
		"spec": map[string]any{"hosts": []any{"e"}, "http": []any{}},
	}}
	other := l.client.Resource(virtualServices).Namespace("shop")
	_, err := other.Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "somebody"})
	require.NoError(t, err)
	l.fails(t, "VirtualService shop/theirs is not ours and has host e: it belongs to field managers somebody")
	require.Equal(t, []string{"virtualservices/theirs", "leases/heart"}, l.written(t))
	require.NoError(t, other.Delete(t.Context(), "theirs", metav1.DeleteOptions{}))

	code, _, stderr := run(t, l.args(t, "--once")...)
	require.Equal(t, cli.Done, code, stderr)
	inForce := l.version(t)
	t.Run("clock skew", func(t *testing.T) { testClockSkew(t, l) })
	t.Run("empty Prometheus", func(t *testing.T) {
		empty, _ := startPrometheus(t, "1s")
		other := l
		other.config = strings.Replace(l.config, l.prometheusURL, empty, 1)
		other.fails(t, "no series; Prometheus has 0 targets, 0 of them down: see "+empty+"/targets")
	})
	t.Run("kubeconfig", func(t *testing.T) { testKubeconfig(t, l) })
	require.Equal(t, inForce, l.version(t), "the table in force stays")
	t.Run("restart", func(t *testing.T) { testRestart(t, l) })
}

// fails makes steps until one fails with these words.
func (l live) fails(t *testing.T, words string) {
	t.Helper()
	told := &said{}
	soon(t, "step that fails with "+words, told, func() bool {
		var code int
		code, _, told.text = run(t, l.args(t, "--once")...)
		return code == cli.Failed && strings.Contains(told.text, words)
	})
}

// version changes with every write to the routes.
func (l live) version(t *testing.T) string {
	u, err := l.client.Resource(virtualServices).Namespace("shop").Get(t.Context(), "heart-e", metav1.GetOptions{})
	require.NoError(t, err)
	return u.GetResourceVersion()
}

// testClockSkew: an observation of a Prometheus whose clock differs by more
// than maxAge may be of any age.
func testClockSkew(t *testing.T, l live) {
	file := write(t, "heart.yaml", "namespace: shop\n"+l.config)
	config, err := readConfig(file)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(l.Config)
	require.NoError(t, err)
	c, err := newCluster(config, client)
	require.NoError(t, err)
	c.start()
	defer c.stop()
	require.NoError(t, c.wait(t.Context()))
	observer, err := prom.New(config.Prometheus, c.topology)
	require.NoError(t, err)
	for off, want := range map[time.Duration]string{
		0: "", 6 * time.Second: "the observation ended ", time.Hour: "expected 5s at most: Prometheus has nothing newer, or its clock is behind",
		-time.Hour: "the clock of Prometheus is ahead, or this machine's is behind",
	} {
		now := func() time.Time { return time.Now().Add(off) }
		_, err := fresh{observer, config.MaxAge, now, newMetrics()}.Observe(t.Context())
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// testKubeconfig: a cluster that is not there, or does not let us in.
func testKubeconfig(t *testing.T, l live) {
	for want, change := range map[string]func(*clientcmdapi.Config){
		`list pods in namespace "shop": Get "https://127.0.0.1:1/`: func(c *clientcmdapi.Config) { c.Clusters["test"].Server = "https://127.0.0.1:1" },
		`list pods in namespace "shop": Unauthorized`:              func(c *clientcmdapi.Config) { c.AuthInfos["admin"].Token = "wrong" },
		`User "system:serviceaccount:shop:default" cannot list`:    func(c *clientcmdapi.Config) { c.AuthInfos["admin"].Impersonate = "system:serviceaccount:shop:default" },
		"certificate signed by unknown authority":                  func(c *clientcmdapi.Config) { c.Clusters["test"].CertificateAuthority = "" },
	} {
		config, err := clientcmd.LoadFromFile(l.account)
		require.NoError(t, err)
		change(config)
		other := l
		other.account = filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, clientcmd.WriteToFile(*config, other.account))
		began := time.Now()
		code, _, stderr := run(t, other.args(t, "--once")...)
		require.Equal(t, cli.Failed, code)
		require.Contains(t, stderr, "read the cluster: ")
		require.Contains(t, stderr, want)
		require.Less(t, time.Since(began), 15*time.Second)
	}
}

// testRestart: the API server goes and comes back, then stays away for longer
// than the lease lasts.
func testRestart(t *testing.T, l live) {
	end, log := l.background(t)
	soon(t, "step", log, func() bool { return l.steps(t, "none") >= 1 })
	l.StopServer()
	soon(t, "failed step", log, func() bool { return l.steps(t, "apply") >= 1 })
	l.StartServer(t)
	before := l.steps(t, "none")
	soon(t, "steps again", log, func() bool { return l.steps(t, "none") > before })
	require.NotContains(t, log.String(), errDeposed.Error())

	inForce := l.version(t)
	l.StopServer()
	soon(t, "end", log, func() bool { return strings.Contains(log.String(), errDeposed.Error()) })
	require.Equal(t, cli.Failed, end())
	l.StartServer(t)
	require.Equal(t, inForce, l.version(t))
}
