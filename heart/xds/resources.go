package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
)

// maxRequests is how many requests a caller may have outstanding to a
// component. The default of gRPC and Envoy, 1,024, would fail requests that an
// overloaded testbed is to queue.
const maxRequests = 1 << 20

// snapshot is what one caller replica is told.
type snapshot struct {
	version   string
	callees   []string // components, sorted
	resources *cache.Snapshot
}

// bundle is the resources of one route. Its callers share them.
type bundle struct {
	component string
	listener  *listener.Listener
	cluster   *cluster.Cluster
	endpoints *endpoint.ClusterLoadAssignment
	digest    [sha256.Size]byte
}

// builder turns a table into snapshots.
type builder struct {
	addresses  map[string]netip.AddrPort
	perRequest bool
}

// snapshots builds one for each caller replica of a valid table. The errors of
// all routes are joined.
func (b builder) snapshots(table heart.RoutingTable) (map[string]snapshot, error) {
	groups := make(map[string]heart.Group, len(table.Groups))
	for _, g := range table.Groups {
		groups[g.Name] = g
	}
	var errs []error
	bundles := map[string][]bundle{} // by caller replica
	for _, r := range table.Routes {
		built, err := b.bundle(r, groups)
		if err != nil {
			errs = append(errs, fmt.Errorf("from %q to %q: %w", r.From, r.To, err))
			continue
		}
		for _, caller := range groups[r.From].Replicas {
			bundles[caller] = append(bundles[caller], built)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	all := make(map[string]snapshot, len(bundles))
	for _, caller := range slices.Sorted(maps.Keys(bundles)) {
		s, err := newSnapshot(bundles[caller])
		if err != nil {
			return nil, fmt.Errorf("replica %q: %w", caller, err)
		}
		all[caller] = s
	}
	return all, nil
}

// newSnapshot joins the routes of one caller. The version is a digest of the
// content: the same table is not sent twice, and a restarted server cannot
// give an old version's name to new content.
func newSnapshot(bundles []bundle) (snapshot, error) {
	slices.SortFunc(bundles, func(a, b bundle) int { return strings.Compare(a.component, b.component) })
	var s snapshot
	var listeners, clusters, endpoints []types.Resource
	sum := sha256.New()
	for _, b := range bundles {
		s.callees = append(s.callees, b.component)
		listeners, clusters, endpoints = append(listeners, b.listener), append(clusters, b.cluster), append(endpoints, b.endpoints)
		sum.Write(b.digest[:])
	}
	s.version = hex.EncodeToString(sum.Sum(nil)[:8])
	var err error
	s.resources, err = cache.NewSnapshot(s.version, map[resource.Type][]types.Resource{
		resource.ListenerType: listeners, resource.ClusterType: clusters, resource.EndpointType: endpoints,
	})
	return s, err
}

func (b builder) bundle(r heart.Route, groups map[string]heart.Group) (bundle, error) {
	endpoints, err := b.endpoints(r, groups)
	if err != nil {
		return bundle{}, err
	}
	l, err := newListener(r.To)
	if err != nil {
		return bundle{}, err
	}
	c, err := b.cluster(r)
	if err != nil {
		return bundle{}, err
	}
	built := bundle{component: r.To, listener: l, cluster: c, endpoints: endpoints}
	sum := sha256.New()
	for _, m := range []proto.Message{l, c, endpoints} {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return bundle{}, fmt.Errorf("encode %T: %w", m, err)
		}
		fmt.Fprintf(sum, "%d\n", len(raw))
		sum.Write(raw)
	}
	sum.Sum(built.digest[:0])
	return built, nil
}

// newListener sends all requests to the component's cluster. The route is in
// the listener, which saves the client a round trip.
func newListener(component string) (*listener.Listener, error) {
	final, err := anypb.New(&router.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := anypb.New(&hcm.HttpConnectionManager{
		RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
			Name: component,
			VirtualHosts: []*route.VirtualHost{{Name: component, Domains: []string{"*"}, Routes: []*route.Route{{
				Match: &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: ""}},
				Action: &route.Route_Route{Route: &route.RouteAction{
					ClusterSpecifier: &route.RouteAction_Cluster{Cluster: component},
				}},
			}}}},
		}},
		HttpFilters: []*hcm.HttpFilter{{Name: "router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: final}}},
	})
	if err != nil {
		return nil, err
	}
	return &listener.Listener{Name: component, ApiListener: &listener.ApiListener{ApiListener: manager}}, nil
}

func (b builder) cluster(r heart.Route) (*cluster.Cluster, error) {
	c := &cluster.Cluster{
		Name:                 r.To,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_EDS},
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{EdsConfig: &core.ConfigSource{
			ResourceApiVersion:    core.ApiVersion_V3,
			ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		}},
		CircuitBreakers: &cluster.CircuitBreakers{Thresholds: []*cluster.CircuitBreakers_Thresholds{{
			MaxRequests: wrapperspb.UInt32(maxRequests),
		}}},
	}
	return c, balance(c, r.Balancer, b.perRequest)
}
