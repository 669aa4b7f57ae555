package experiments

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"heartbed/heart/placement"
	"heartbed/workloads"
)

// app checks one application and how it is run.
func (v *validation) app(field string, a App) {
	if (a.Application != "") == (a.Inline != nil) {
		v.faults.add(field, "found %s of application and inline, expected exactly one", map[bool]string{true: "both", false: "neither"}[a.Inline != nil])
		return
	}
	if a.CPUMs != 0 {
		v.above(field+".cpuMs", a.CPUMs)
	}
	if len(a.RPS) == 0 {
		v.faults.add(field+".rps", "found none, expected at least one rate")
	}
	v.scale(field+".scale", a.Scale)
	v.pattern(field, a)
	for i, rps := range a.RPS {
		v.above(fmt.Sprintf("%s.rps[%d]", field, i), rps)
		if slices.Contains(a.RPS[:i], rps) {
			v.faults.add(fmt.Sprintf("%s.rps[%d]", field, i), "found %v twice, expected each rate once", rps)
		}
	}
	application, err := a.application()
	if err != nil {
		v.faults.add(field+".application", "found %q, expected one of %s", a.Application, strings.Join(workloads.Names(), ", "))
		return
	}
	within := field
	if a.Inline != nil {
		within += ".inline"
	}
	v.faults.addErr(within, fmt.Sprintf("application %q: ", application.Name), application.Validate())
	for _, name := range slices.Sorted(maps.Keys(a.Replicas)) {
		if !slices.ContainsFunc(application.Components, func(c workloads.Component) bool { return c.Name == name }) {
			v.faults.add(field+".replicas."+name, "found a component that %q does not have", application.Name)
		}
	}
	v.oneOf(field+".placement", "placement", a.Placement, slices.Sorted(maps.Keys(a.Placements)))
	for _, name := range slices.Sorted(maps.Keys(a.Placements)) {
		v.name(field+".placements."+name, name)
		v.placement(field+".placements."+name, a.Placements[name], application)
	}
}

func (v *validation) placement(field string, p Placement, app workloads.Application) {
	if (p.Rule != "") == (p.Given != nil) {
		v.faults.add(field, "found %s of rule and given, expected exactly one", map[bool]string{true: "both", false: "neither"}[p.Given != nil])
		return
	}
	if p.Rule != "" {
		v.oneOf(field+".rule", "rule", p.Rule, placement.Rules())
		v.above(field+".cpu", p.CPU)
		v.above(field+".memoryMB", p.MemoryMB)
		return
	}
	components := map[string]bool{}
	for _, c := range app.Components {
		components[c.Name] = true
		if found := len(p.Given[c.Name]); found != c.Replicas {
			v.faults.add(field+".given."+c.Name, "found %d nodes, expected one a replica (%d)", found, c.Replicas)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Given)) {
		if !components[name] {
			v.faults.add(field+".given."+name, "found a component that %q does not have", app.Name)
		}
		for i, node := range p.Given[name] {
			v.knownNode(fmt.Sprintf("%s.given.%s[%d]", field, name, i), node)
		}
	}
}
