// Package xds puts routing tables into force over xDS, the protocol that gRPC
// clients and Envoy learn their routes by. Server is a heart.Router and an
// aggregated discovery server: it holds one snapshot for each caller replica,
// which asks for it with its own name as node id.
//
//	heart.RoutingTable -> resources (resources.go) -> snapshot cache -> clients
//	                                   acks (acks.go) <- versions accepted <-
//
// A route to component e becomes a Listener, a Cluster and a
// ClusterLoadAssignment, all called e, so that a caller dials Target("e").
package xds
