package store

// Metrics that a pod pushes, the keys of Sample.Values and the names under which
// the API of custom metrics serves them.
const (
	// InboundActiveRequests are the requests in flight that the pod serves, at
	// the moment of the flush.
	InboundActiveRequests = "inbound_active_requests"
	// OutboundActiveRequests are those that it has sent, or that a gateway
	// passes on.
	OutboundActiveRequests = "outbound_active_requests"
	// ActiveConnections are the open connections of its listeners.
	ActiveConnections = "active_connections"
	// InboundMeanRequests are the requests in flight in the mean of the last
	// interval, by Little's law from the histogram of the requests that ended in
	// it; only if the receiver was asked for it.
	InboundMeanRequests = "inbound_mean_requests"
)

// Metrics are the names of all.
func Metrics() []string {
	return []string{InboundActiveRequests, OutboundActiveRequests, ActiveConnections, InboundMeanRequests}
}
