// Package heart is the allocation core: what a controller sees (Topology,
// Observation), what it decides (RoutingTable) and the loop body that joins
// the two (Controller.Step).
//
// The package is pure: it does no I/O and reads no clock except in
// Controller.Run. Sessions own time, so the same controller runs in the
// simulator, on network namespaces, on kind and on a user's cluster.
// It imports nothing of ours.
package heart
