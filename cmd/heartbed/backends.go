package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"heartbed/experiments"
	"heartbed/testbed"
	"heartbed/testbed/cluster"
	"heartbed/testbed/kind"
	"heartbed/testbed/live"
	"heartbed/testbed/netns"
	"heartbed/testbed/sim"
)

// simulator is the backend that runs everywhere and beside every other one.
const simulator = "sim"

// Backends that have flags of their own.
const (
	kindBackend    = "kind"
	clusterBackend = "cluster"
)

// backends are the places that can run a scenario. A backend is known to the
// program by its line here and nowhere else.
var backends = map[string]place{
	simulator:   {sim.Backend{}, "time, CPU and network are simulated, exact to repeat", runtime.GOMAXPROCS(0), nil, nil, nil},
	"netns":     {netns.Backend{}, "processes in network namespaces of this machine, packets delayed, CPU by quota", 1, netns.CheckClean, netns.Down, nil},
	kindBackend: {inDocker, "a Kubernetes cluster in Docker containers, packets delayed, CPU by quota", 1, kind.CheckClean, kind.Down, inDocker.Close},

	clusterBackend: {ownCluster, "a namespace of a Kubernetes cluster of yours, as it is", 1, cluster.CheckClean, cluster.Down, ownCluster.Close},
}

// inDocker is kept from trial to trial; close removes it.
var inDocker = &kind.Backend{}

// place is a backend with what the command line must know of it.
type place struct {
	testbed.Backend
	summary string
	workers int // trials at the same time that do not disturb each other
	// clean fails if runs that were killed left something on this machine, and
	// down removes it, both by the journals in a folder ("" = the backend's own);
	// nil = they leave nothing.
	clean func(journals string) error
	down  func(ctx context.Context, journals string) ([]live.Removed, error)
	close func() error // gives back what was kept from trial to trial; nil = nothing
}

func backendNames() []string { return slices.Sorted(maps.Keys(backends)) }

func lookupBackend(name string) (place, error) {
	b, known := backends[name]
	if !known {
		return place{}, experiments.Faults{{Field: "backend", Problem: fmt.Sprintf("found %q, expected one of %s", name, strings.Join(backendNames(), ", "))}}
	}
	return b, nil
}
