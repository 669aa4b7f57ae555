// Package prom observes a cluster through the HTTP API of Prometheus: CPU time
// and requests of every replica, requests from component to component and
// round-trip times between nodes. What exists (nodes, replicas, calls) is given
// by the caller; series are joined with it by labels that hold names, never by
// addresses.
//
// Counters are read as they were scraped, by a range selector, and what they
// grew by is taken here, not by PromQL's increase: a counter that begins in the
// window counts from zero if its process was scraped before, a restart is seen
// on all counters of a process at once, and every replica is extrapolated to
// the same window.
//
// What has no series is absent from the observation, with a warning; an
// observation without any replica is an error, so that a fault of the
// measurement is never taken for an idle cluster.
package prom
