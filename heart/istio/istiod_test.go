package istio_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"k8s.io/client-go/dynamic"

	"heartbed/heart"
	"heartbed/heart/istio"
	"heartbed/heart/istio/istiotest"
	"heartbed/testbed/testbedtest"
	"heartbed/workloads"
	"heartbed/workloads/service"
)

// call is the application d -> e. Neither does any work worth speaking of.
var call = workloads.Application{
	Name: "call", Entry: "d",
	Components: []workloads.Component{
		{Name: "d", Replicas: 1, Steps: []workloads.Step{{Call: []string{"e"}}}},
		{Name: "e", Replicas: 1, Steps: []workloads.Step{{CPUMs: 0.001}}},
	},
	Server: workloads.Server{Threads: 1},
}

// mesh are services that real gRPC clients, attached to a real istiod, call.
type mesh struct {
	shop
	xds      string
	callees  map[string]*service.Service
	channels map[string]*grpc.ClientConn // to each caller
}

// address of a pod, which is named like e-1.
func address(pod string) netip.Addr {
	at := istiotest.Pods.Addr().As4()
	at[2], at[3] = pod[0], pod[2]
	return netip.AddrFrom4(at)
}

func newMesh(t *testing.T) mesh {
	c := istiotest.Start(t)
	c.InstallIstio(t)
	m := mesh{
		shop: shop{c, dynamic.NewForConfigOrDie(c.Config), "mesh"}, xds: c.Istiod(t),
		callees: map[string]*service.Service{}, channels: map[string]*grpc.ClientConn{},
	}
	c.CreateNamespace(t, m.namespace)
	c.CreateService(t, m.namespace, "e", 7000)
	for name, node := range map[string]string{"e-1": "n1", "e-2": "n2", "e-3": "n2", "e-4": "n3"} {
		m.callees[name] = m.serve(t, service.Config{Replica: name, Component: "e"})
		m.CreatePod(t, istiotest.Pod{
			Namespace: m.namespace, Name: name, Node: node, Service: "e", Address: netip.MustParseAddrPort(m.callees[name].Addr().String()),
			Labels: map[string]string{"app": "e", "istio-locality": "r.z." + node},
		})
	}
	for name, node := range map[string]string{"d-1": "n1", "d-2": "n2"} {
		m.CreatePod(t, istiotest.Pod{
			Namespace: m.namespace, Name: name, Node: node, Address: netip.AddrPortFrom(address(name), 1),
			Labels: map[string]string{"app": "d", "istio-locality": "r.z." + node},
		})
		m.call(t, name)
	}
	return m
}

// serve runs a replica until the end of the test.
func (m mesh) serve(t *testing.T, cfg service.Config, dial ...grpc.DialOption) *service.Service {
	cfg.App, cfg.Listen, cfg.Metrics = call, netip.AddrPortFrom(address(cfg.Replica), 0).String(), "127.0.0.1:0"
	s, err := service.New(cfg, dial...)
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { end(); running.Wait() })
	return s
}

// call runs the pod's replica of d, whose gRPC asks istiod for its routes as
// a proxyless client does, and connects to it.
func (m mesh) call(t *testing.T, pod string) {
	type object = map[string]any
	bootstrap, err := json.Marshal(object{
		"xds_servers": []object{{"server_uri": m.xds, "channel_creds": []object{{"type": "insecure"}}, "server_features": []string{"xds_v3"}}},
		"node": object{
			"id":       fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", address(pod), pod, m.namespace, m.namespace),
			"metadata": object{"GENERATOR": "grpc", "NAMESPACE": m.namespace, "CLUSTER_ID": "Kubernetes"},
		},
	})
	require.NoError(t, err)
	m.channels[pod] = m.attach(t, pod, bootstrap, "xds:///e."+m.namespace+".svc.cluster.local:7000")
}

// attach runs a replica of d that finds e as the bootstrap says, and connects
// to it.
func (m mesh) attach(t *testing.T, replica string, bootstrap []byte, target string) *grpc.ClientConn {
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
	require.NoError(t, err)
	s := m.serve(t, service.Config{Replica: replica, Component: "d", Targets: map[string]string{"e": target}}, grpc.WithResolvers(resolver))
	conn, err := grpc.NewClient("passthrough:///"+s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// send makes n requests of a caller, eight at a time, and gives how many
// failed because its gRPC did not yet know a cluster of its new routes.
func (m mesh) send(t *testing.T, caller string, n int) int {
	var failed atomic.Int64
	g, ctx := errgroup.WithContext(t.Context())
	for range 8 {
		g.Go(func() error {
			for range n / 8 {
				err := invoke(ctx, m.channels[caller])
				if isNewCluster(err) {
					failed.Add(1)
				} else if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	return int(failed.Load())
}

func invoke(ctx context.Context, conn *grpc.ClientConn) error {
	return conn.Invoke(ctx, service.Method, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{})
}

// isNewCluster: gRPC-Go takes new routes before the clusters that they name,
// and fails what it sends in between.
func isNewCluster(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "unknown cluster selected for RPC")
}

// served counts the answers of each replica of e.
func (m mesh) served(t *testing.T) map[string]float64 {
	counts := map[string]float64{}
	for name := range m.callees {
		counts[name] = m.answers(t, name)
	}
	return counts
}

// answers of a replica of e.
func (m mesh) answers(t *testing.T, replica string) float64 {
	response, err := http.Get("http://" + m.callees[replica].MetricsAddr().String() + "/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	sum := 0.0
	for _, metric := range families["heartbed_requests_total"].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}
	return sum
}

// split sends requests and gives the part of each replica of e, in per cent,
// and how many failed.
func (m mesh) split(t *testing.T, caller string, n int) (parts map[string]float64, failed int) {
	before := m.served(t)
	failed = m.send(t, caller, n)
	parts = map[string]float64{}
	for name, count := range m.served(t) {
		parts[name] = math.Round((count-before[name])/float64(n)*1e4) / 100
	}
	return parts, failed
}

// settles waits until a caller's requests are split nearly so, and gives how
// long that took since the given moment.
func (m mesh) settles(t *testing.T, since time.Time, caller string, want map[string]float64) time.Duration {
	var got map[string]float64
	for time.Since(since) < 20*time.Second {
		if got, _ = m.split(t, caller, 160); distance(got, want) < 15 {
			return time.Since(since)
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.Failf(t, "the shares do not come", "%s: found %v, expected %v", caller, got, want)
	return 0
}

// distance is the greatest difference of a part.
func distance(got, want map[string]float64) float64 {
	most := 0.0
	for _, name := range []string{"e-1", "e-2", "e-3", "e-4"} {
		most = max(most, math.Abs(got[name]-want[name]))
	}
	return most
}

// TestSharesThroughIstiod writes tables for a real istiod and counts where the
// requests of real gRPC clients arrive. 4,000 requests put the standard
// deviation of a share at 0.8 per cent points at most.
func TestSharesThroughIstiod(t *testing.T) {
	testbedtest.Require(t, "kind", istiotest.CheckIstiod())
	if !istiotest.Enclose(t) {
		return
	}
	m := newMesh(t)
	router := m.router(t, istio.Options{})
	even := map[string]float64{"e-1": 25, "e-2": 25, "e-3": 25, "e-4": 25}
	m.settles(t, time.Now(), "d-1", even)

	least := istio.ByNode([3]uint32{1, 1, 1}, [3]uint32{1, 1, 1})
	for i := range least.Routes {
		least.Routes[i].Balancer = heart.LeastRequest
		least.Routes[i].Shares = []heart.Share{{To: "e", Weight: 1}}
	}
	least.Groups = append(slices.Clone(least.Groups[:2]), heart.Group{Name: "e", Component: "e", Replicas: []string{"e-1", "e-2", "e-3", "e-4"}})
	single := istio.ByNode()
	single.Groups = append(slices.Clone(single.Groups[:2]),
		heart.Group{Name: "e-2", Component: "e", Node: "n2", Replicas: []string{"e-2"}}, heart.Group{Name: "e-3", Component: "e", Node: "n2", Replicas: []string{"e-3"}})
	for _, from := range []string{"d@n1", "d@n2"} {
		single.Routes = append(single.Routes, heart.Route{From: from, To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e-2", Weight: 1}, {To: "e-3", Weight: 4}}})
	}
	for _, step := range []struct {
		name   string
		router *istio.Router
		table  heart.RoutingTable
		want   map[string]map[string]float64
	}{
		{"by node", router, istio.ByNode([3]uint32{60, 30, 10}, [3]uint32{0, 0, 7}), map[string]map[string]float64{
			"d-1": {"e-1": 60, "e-2": 15, "e-3": 15, "e-4": 10}, "d-2": {"e-4": 100}}},
		{"other shares", router, istio.ByNode([3]uint32{5, 80, 15}, [3]uint32{1, 0, 1}), map[string]map[string]float64{
			"d-1": {"e-1": 5, "e-2": 40, "e-3": 40, "e-4": 15}, "d-2": {"e-1": 50, "e-4": 50}}},
		{"by replica", router, single, map[string]map[string]float64{
			"d-1": {"e-2": 20, "e-3": 80}, "d-2": {"e-2": 20, "e-3": 80}}},
		{"least request", router, least, map[string]map[string]float64{"d-1": even, "d-2": even}},
		{"by locality", m.router(t, istio.Options{Localities: map[string]string{"n1": "r/z/n1", "n2": "r/z/n2", "n3": "r/z/n3"}}),
			istio.ByNode([3]uint32{60, 30, 10}, [3]uint32{1, 0, 3}), map[string]map[string]float64{
				"d-1": {"e-1": 60, "e-2": 15, "e-3": 15, "e-4": 10}, "d-2": {"e-1": 25, "e-4": 75}}},
	} {
		t.Run(step.name, func(t *testing.T) {
			began := time.Now()
			require.NoError(t, step.router.Route(t.Context(), step.table))
			written := time.Since(began)
			took := map[string]time.Duration{}
			for caller, want := range step.want {
				took[caller] = m.settles(t, began, caller, want)
			}
			for _, caller := range slices.Sorted(maps.Keys(step.want)) {
				got, failed := m.split(t, caller, 4000)
				require.Zero(t, failed)
				t.Logf("%s: %v, expected %v; written after %v, in force after %v", caller, got, step.want[caller], written.Round(time.Millisecond), took[caller].Round(time.Millisecond))
				require.Less(t, distance(got, step.want[caller]), 3.0)
			}
		})
	}
	_, err := router.Reset(t.Context())
	require.NoError(t, err)
	m.settles(t, time.Now(), "d-1", even)
}
