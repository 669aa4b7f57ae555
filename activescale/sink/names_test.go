package sink

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"heartbed/workloads/push"
)

// labels are pairs of name and value.
func labels(pairs ...string) []*dto.LabelPair {
	var all []*dto.LabelPair
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, &dto.LabelPair{Name: proto.String(pairs[i]), Value: proto.String(pairs[i+1])})
	}
	return all
}

// TestKindOf has Istio's names of both kinds: its pull request 52234 (release
// note 51761) put a semicolon into them, which broke programs that read them.
func TestKindOf(t *testing.T) {
	for name, want := range map[string]kind{
		"http.inbound_0.0.0.0_8080;.downstream_rq_active":                 inboundActive,
		"http.inbound_0.0.0.0_8080.downstream_rq_active":                  inboundActive,
		"http.inbound_10.1.2.3_8080.downstream_rq_active":                 inboundActive,
		"http.inbound_[::]_8080;.downstream_rq_active":                    inboundActive,
		"http.inbound_[__]_8080;.downstream_rq_active":                    inboundActive, // Envoy replaces colons
		"http.inbound_[::]_8080.downstream_rq_active":                     inboundActive,
		"http.InboundPassthroughCluster;.downstream_rq_active":            inboundActive,
		"http.InboundPassthroughClusterIpv4.downstream_rq_active":         inboundActive,
		"http.outbound_0.0.0.0_8080;.downstream_rq_active":                outboundActive, // a gateway's, too
		"http.outbound_0.0.0.0_443.downstream_rq_active":                  outboundActive,
		"http.outbound_[::]_8443;.downstream_rq_active":                   outboundActive,
		"http.stats.downstream_rq_active":                                 otherActive, // envoy issue 28488
		"http.admin.downstream_rq_active":                                 otherActive,
		"http.agent.downstream_rq_active":                                 otherActive,
		"http.inbound_0.0.0.0_8080;.rbac.x;.downstream_rq_active":         nothing,
		"http.downstream_rq_active":                                       nothing,
		"http..downstream_rq_active":                                      nothing,
		"httpx.inbound_0.0.0.0_8080;.downstream_rq_active":                nothing,
		"http.inbound_0.0.0.0_8080;.downstream_rq_total":                  nothing,
		"http.inbound_0.0.0.0_8080;.downstream_cx_active":                 nothing,
		"listener.0.0.0.0_80.http.inbound_0.0.0.0_8080.downstream_rq_2xx": nothing,
		"cluster.inbound|8080||.upstream_rq_active":                       nothing,
		"http.inbound_0.0.0.0_8080;.downstream_rq_time":                   inboundTime,
		"http.outbound_0.0.0.0_8080;.downstream_rq_time":                  nothing,
		"http.stats.downstream_rq_time":                                   nothing,

		"listener.0.0.0.0_8080.downstream_cx_active":           portConnections,
		"listener.0.0.0.0_8080;.downstream_cx_active":          portConnections,
		"listener.10.1.2.3_8080.downstream_cx_active":          portConnections,
		"listener.[::]_8080.downstream_cx_active":              portConnections,
		"listener.[__]_8080.downstream_cx_active":              portConnections,
		"listener.[2001_db8__1]_443.downstream_cx_active":      portConnections,
		"listener.0.0.0.0_15006.downstream_cx_active":          interceptedConnections,
		"listener.[__]_15006.downstream_cx_active":             interceptedConnections,
		"listener.0.0.0.0_15001.downstream_cx_active":          nothing, // what the pod opens
		"listener.0.0.0.0_15008.downstream_cx_active":          nothing,
		"listener.127.0.0.1_15000.downstream_cx_active":        nothing,
		"listener.0.0.0.0_15021.downstream_cx_active":          nothing,
		"listener.0.0.0.0_15090.downstream_cx_active":          nothing,
		"listener.127.0.0.1_15053.downstream_cx_active":        nothing,
		"listener.admin.downstream_cx_active":                  nothing,
		"listener.admin.main_thread.downstream_cx_active":      nothing,
		"listener.main_internal.downstream_cx_active":          nothing,
		"listener.0.0.0.0_8080.worker_0.downstream_cx_active":  nothing,
		"listener.0.0.0.0_8080.worker_12.downstream_cx_active": nothing,
		"listener.0.0.0.0_8080.downstream_cx_total":            nothing,
		"listener._8080.downstream_cx_active":                  nothing,
		"listener.0.0.0.0_0.downstream_cx_active":              nothing,
		"listener.0.0.0.0_99999.downstream_cx_active":          nothing,
		"listener.0.0.0.0_+80.downstream_cx_active":            nothing,
		"listener.downstream_cx_active":                        nothing,
		"downstream_cx_active":                                 nothing,
		"":                                                     nothing,
	} {
		require.Equal(t, want, kindOf(name, nil), name)
	}
	for _, name := range push.Noise {
		require.Contains(t, []kind{nothing, otherActive}, kindOf(name, nil), name)
	}
}

// TestKindOfTags has the names that emit_tags_as_labels leaves: Istio's rules
// find a tag in a listener's name only, Envoy's in both, up to the first dot.
func TestKindOfTags(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels []*dto.LabelPair
		want   kind
	}{
		{"http.inbound_0.0.0.0_8080;.downstream_rq_active", labels("pod", "x"), inboundActive},
		{"http.0.0.0_8080;.downstream_rq_active", labels("envoy.http_conn_manager_prefix", "inbound_0"), inboundActive},
		{"http.0.0.0_8080;.downstream_rq_active", labels("envoy.http_conn_manager_prefix", "outbound_0"), outboundActive},
		{"http.downstream_rq_active", labels("http_conn_manager_prefix", "inbound_0.0.0.0_8080;"), inboundActive},
		{"http.downstream_rq_active", labels("envoy.http_conn_manager_prefix", "stats"), otherActive},
		{"http.downstream_rq_time", labels("http_conn_manager_prefix", "inbound_0.0.0.0_8080"), inboundTime},
		{"listener.downstream_cx_active", labels("listener_address", "0.0.0.0_8080"), portConnections},
		{"listener.downstream_cx_active", labels("envoy.listener_address", "[__]_15006"), interceptedConnections},
		{"listener.downstream_cx_active", labels("listener_address", "0.0.0.0_15090"), nothing},
		{"listener.worker_0.downstream_cx_active", labels("listener_address", "0.0.0.0_8080"), nothing},
		{"listener.downstream_cx_active", labels("listener_address", "0.0.0.0_8080", "envoy.worker_id", "0"), nothing},
		{"listener.worker_downstream_cx_active", labels("listener_address", "0.0.0.0_8080", "envoy.worker_id", "0"), nothing},
		{"listener.admin.downstream_cx_active", labels("other", "0.0.0.0_8080"), nothing},
	} {
		require.Equal(t, c.want, kindOf(c.name, c.labels), "%s %v", c.name, c.labels)
	}
}

// FuzzKindOf: a name that counts is one that Istio gives, counts the same
// without its delimiter and with its address in a label, and the numbers of
// workers never count.
func FuzzKindOf(f *testing.F) {
	for _, name := range []string{
		"http.inbound_0.0.0.0_8080;.downstream_rq_active", "http.outbound_[::]_8080;.downstream_rq_active", "listener.0.0.0.0_15006.downstream_cx_active",
		"listener.[__]_8080.worker_1.downstream_cx_active", "http.;.downstream_rq_active", "listener._.downstream_cx_active", "http.x;;.downstream_rq_time",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		k := kindOf(name, nil)
		scope, what := cutLast(name, ".")
		root, address, _ := strings.Cut(scope, ".")
		if k == nothing {
			return
		}
		require.Contains(t, []string{"http", "listener"}, root)
		if single := strings.TrimSuffix(address, ";"); single != "" && !strings.HasSuffix(single, ";") && !strings.HasSuffix(single, ".") {
			require.Equal(t, k, kindOf(root+"."+single+"."+what, nil))
			require.Equal(t, k, kindOf(root+"."+single+";."+what, nil))
		}
		tag := map[string]string{"http": "http_conn_manager_prefix", "listener": "envoy.listener_address"}[root]
		require.Equal(t, k, kindOf(root+"."+what, labels(tag, address)))
		if root == "listener" {
			require.Equal(t, nothing, kindOf(root+"."+address+".worker_3."+what, nil))
		}
	})
}
