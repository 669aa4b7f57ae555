package sink

import (
	"hash/maphash"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// kind is what a metric means here.
type kind int

const (
	nothing        kind = iota
	inboundActive       // requests in flight that the pod serves
	outboundActive      // that it sends, or a gateway passes on
	otherActive         // that the proxy's own listeners serve, such as http.stats
	inboundTime         // durations of inbound requests
	portConnections
	interceptedConnections
)

// kindOf reads the name of a metric, with the labels that Envoy's
// emit_tags_as_labels makes of parts of it.
func kindOf(name string, labels []*dto.LabelPair) kind {
	scope, what := cutLast(name, ".")
	switch what {
	case "downstream_rq_active":
		return httpKind(restore(scope, "http", "http_conn_manager_prefix", labels), inboundActive, outboundActive, otherActive)
	case "downstream_rq_time":
		return httpKind(restore(scope, "http", "http_conn_manager_prefix", labels), inboundTime, nothing, nothing)
	case "downstream_cx_active":
		return listenerKind(restore(scope, "listener", "listener_address", labels), labels)
	}
	return nothing
}

var seed = maphash.MakeSeed()

// hash is of the name with the labels that belong to it.
func hash(name string, labels []*dto.LabelPair) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(name)
	for _, l := range labels {
		h.WriteByte(0)
		h.WriteString(l.GetName())
		h.WriteByte(0)
		h.WriteString(l.GetValue())
	}
	return max(h.Sum64(), 1)
}

// restore gives what follows the root of a metric's scope, with the part that
// was moved into the tag put back to where it was; "" if the scope has another
// root. Envoy's own tags are named like Istio's with envoy. before.
func restore(scope, root, tag string, labels []*dto.LabelPair) string {
	rest, ok := strings.CutPrefix(scope, root)
	if !ok || rest != "" && rest[0] != '.' {
		return ""
	}
	for _, l := range labels {
		if strings.TrimPrefix(l.GetName(), "envoy.") == tag {
			rest = "." + l.GetValue() + rest
		}
	}
	return strings.TrimPrefix(rest, ".")
}

// httpKind tells by the prefix of a connection manager's metrics, which Istio
// ends with a semicolon since July 2024 (its pull request 52234), whose
// requests they are: inbound_0.0.0.0_8080, inbound_[::]_8080,
// outbound_0.0.0.0_8080. Inbound requests to a port of which the mesh knows no
// service go by the name of a cluster.
func httpKind(prefix string, inbound, outbound, other kind) kind {
	prefix = strings.TrimSuffix(prefix, ";")
	switch {
	case prefix == "", strings.Contains(prefix, ";."): // of something inside the connection manager
		return nothing
	case strings.HasPrefix(prefix, "inbound_"), strings.HasPrefix(prefix, "InboundPassthroughCluster"):
		return inbound
	case strings.HasPrefix(prefix, "outbound_"):
		return outbound
	}
	return other
}

// interceptedPort is where Istio's sidecars get the connections that iptables
// sends them instead of to the service.
const interceptedPort = 15006

// ownPorts are those on which Istio's proxies serve no traffic of the pod's
// clients: Envoy's administration, what the pod itself opens (15001), the
// agent, tunnels of the ambient mesh (15008, one of which carries many
// connections), health (15020, 15021), DNS and statistics.
var ownPorts = map[int]bool{
	15000: true, 15001: true, 15002: true, 15003: true, 15004: true, 15008: true,
	15020: true, 15021: true, 15053: true, 15090: true,
}

// listenerKind tells by a listener's address, such as 0.0.0.0_8080 or
// [::]_8080, whose colons Envoy may have replaced. What each worker has of a
// listener is in the listener's own number already.
func listenerKind(address string, labels []*dto.LabelPair) kind {
	for _, l := range labels {
		if strings.TrimPrefix(l.GetName(), "envoy.") == "worker_id" {
			return nothing
		}
	}
	address = strings.TrimSuffix(address, ";")
	host, digits := cutLast(address, "_")
	port, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case err != nil, port == 0, host == "", strings.Contains(address, ".worker_"), ownPorts[int(port)]:
		return nothing
	case port == interceptedPort:
		return interceptedConnections
	}
	return portConnections
}

// cutLast cuts around the last separator; without one all is after it.
func cutLast(s, separator string) (before, after string) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return "", s
	}
	return s[:i], s[i+len(separator):]
}
