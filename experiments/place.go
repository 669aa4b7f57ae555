package experiments

import (
	"fmt"

	"heartbed/heart"
	"heartbed/workloads"
)

// placed is an application whose replicas have nodes.
type placed struct {
	app      workloads.Application
	replicas []heart.Replica
	warnings []string
}

// placementRules are the rules a placement may name beside given nodes.
var placementRules = []string{"larp", "pack", "spread"}

// place resolves the placement of an app under a method.
func (s Scenario) place(app, method string) (placed, error) {
	m, _ := s.method(method)
	name := s.placementName(app, m)
	application, err := s.Apps[app].application()
	if err != nil {
		return placed{}, fmt.Errorf("app %s: %w", app, err)
	}
	at := placed{app: application}
	p := s.Apps[app].Placements[name]
	for _, c := range application.Components {
		for i := range c.Replicas {
			r := heart.Replica{Name: fmt.Sprintf("%s%d", c.Name, i+1), Component: c.Name, CPULimit: application.Server.LimitCores}
			if p.Rule == "" {
				r.Node = p.Given[c.Name][i]
			}
			at.replicas = append(at.replicas, r)
		}
	}
	return at, nil
}
