package experiments

import (
	"cmp"
	"fmt"

	"heartbed/heart"
	"heartbed/heart/placement"
	"heartbed/workloads"
)

// placed is an application whose replicas have nodes.
type placed struct {
	app      workloads.Application
	replicas []heart.Replica
}

// place resolves the placement of an app under a method. A rule that finds no
// room is a fault of the scenario.
func (s Scenario) place(app, method string) (placed, error) {
	m, _ := s.method(method)
	name := cmp.Or(m.Placement, s.Apps[app].Placement)
	application, err := s.Apps[app].application()
	if err != nil {
		return placed{}, fmt.Errorf("app %s: %w", app, err)
	}
	p := s.Apps[app].Placements[name]
	in := placement.Input{RTT: s.rtt()}
	for _, n := range s.Nodes {
		in.Nodes = append(in.Nodes, placement.Node{Name: n.Name, Cores: n.Cores})
	}
	for _, c := range application.Components {
		in.Services = append(in.Services, placement.Service{Name: c.Name, Replicas: c.Replicas, CPU: p.CPU, MemoryMB: p.MemoryMB})
	}
	var replicas []heart.Replica
	if p.Rule != "" {
		replicas, err = placement.Place(p.Rule, in)
	} else {
		replicas, err = placement.Given(in, p.Given)
	}
	var faults Faults
	faults.addErr(fmt.Sprintf("apps.%s.placements.%s", app, name), "", err)
	for i := range replicas {
		replicas[i].CPULimit = application.Server.LimitCores
	}
	return placed{application, replicas}, faults.err()
}
