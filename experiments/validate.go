package experiments

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"heartbed/heart/policy"
	"heartbed/workloads"
)

// names are used in file names, so they keep to characters every system takes.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*$`)

const nameRule = "letters, digits, '.', '_', '+' or '-'"

// Metrics a threshold can be set on.
var thresholdMetrics = []string{"p99Ms", "meanMs", "errors", "cpuGapPp"}

// fillDefaults sets what a scenario may leave out.
func (s *Scenario) fillDefaults() {
	if s.RTTScale == 0 {
		s.RTTScale = 1
	}
	if s.Control.Period > 0 && s.Control.Window == 0 {
		s.Control.Window = s.Control.Period
	}
	if s.Control.Period > 0 && s.Control.Scrape == 0 {
		s.Control.Scrape = workloads.Duration(5 * time.Second)
	}
	for i := range s.Nodes {
		if s.Nodes[i].Slowness == 0 {
			s.Nodes[i].Slowness = 1
		}
	}
	for _, app := range s.Apps {
		for name, p := range app.Placements {
			if p.Rule == "" {
				continue
			}
			if p.CPU == 0 {
				p.CPU = 0.5
			}
			if p.MemoryMB == 0 {
				p.MemoryMB = 500
			}
			app.Placements[name] = p
		}
	}
}

// Validate reports every fault of the scenario as Faults.
func (s Scenario) Validate() error {
	v := validation{Scenario: s, nodes: map[string]bool{}}
	v.name("name", s.Name)
	v.cluster()
	v.network()
	v.faults.addErr("", "", s.Load.Validate())
	v.rhythm()
	v.antagonists()
	if len(s.Apps) == 0 {
		v.faults.add("apps", "found none, expected at least one")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Apps)) {
		v.name("apps."+name, name)
		v.app("apps."+name, s.Apps[name])
	}
	v.methods()
	v.scaling()
	v.thresholds()
	if s.Repetitions < 1 {
		v.faults.add("repetitions", "found %d, expected 1 or more", s.Repetitions)
	}
	v.scale("scale", s.Scale)
	if s.Short != nil {
		v.short(*s.Short)
	}
	return v.faults.err()
}

// validation is the state of one Validate.
type validation struct {
	Scenario
	nodes  map[string]bool
	faults Faults
}

func (v *validation) name(field, name string) {
	if !plainName.MatchString(name) {
		v.faults.add(field, "found the name %q, expected %s", name, nameRule)
	}
}

// above reports a value that is not a finite number above zero.
func (v *validation) above(field string, value float64) {
	if !(value > 0) || math.IsInf(value, 0) {
		v.faults.add(field, "found %v, expected a number above 0", value)
	}
}

// atLeast reports a value that is not a finite number of min or more.
func (v *validation) atLeast(field string, value, min float64) {
	if !(value >= min) || math.IsInf(value, 0) {
		v.faults.add(field, "found %v, expected a number of %v or more", value, min)
	}
}

// scale reports a factor that would not make the machine smaller.
func (v *validation) scale(field string, f float64) {
	if f != 0 && !(f >= 1) || math.IsInf(f, 0) {
		v.faults.add(field, "found %v, expected a number of 1 or more", f)
	}
}

// short reports a short form that leaves nothing; what it says is checked when
// it is taken, as the scenario's own fields. It may name apps that a file which
// extends this one has taken out.
func (v *validation) short(s ShortForm) {
	for name := range s.Apps {
		if _, known := v.Apps[name]; known {
			return
		}
	}
	v.faults.add("short.apps", "found none of the scenario's apps, expected some of %s", strings.Join(slices.Sorted(maps.Keys(v.Apps)), ", "))
}

func (v *validation) knownNode(field, node string) {
	if !v.nodes[node] {
		v.faults.add(field, "found node %q, expected one of %s", node, strings.Join(slices.Sorted(maps.Keys(v.nodes)), ", "))
	}
}

// oneOf reports a value that is not in the list of those allowed.
func (v *validation) oneOf(field, what, value string, allowed []string) bool {
	if slices.Contains(allowed, value) {
		return true
	}
	v.faults.add(field, "found %s %q, expected one of %s", what, value, strings.Join(allowed, ", "))
	return false
}

func (v *validation) cluster() {
	if len(v.Nodes) == 0 {
		v.faults.add("nodes", "found none, expected at least one")
	}
	for i, n := range v.Nodes {
		field := fmt.Sprintf("nodes[%d]", i)
		v.name(field+".name", n.Name)
		if v.nodes[n.Name] {
			v.faults.add(field+".name", "found %q twice, expected each name once", n.Name)
		}
		v.nodes[n.Name] = true
		v.above(field+".cores", n.Cores)
		v.above(field+".slowness", n.Slowness)
	}
	v.above("rttScale", v.RTTScale)
	if len(v.RTTMs) != len(v.Nodes) {
		v.faults.add("rttMs", "found %d rows, expected one a node (%d)", len(v.RTTMs), len(v.Nodes))
	}
	measured := false
	for i, row := range v.RTTMs {
		if len(row) != len(v.Nodes) {
			v.faults.add(fmt.Sprintf("rttMs[%d]", i), "found %d values, expected one a node (%d)", len(row), len(v.Nodes))
		}
		for j, rtt := range row {
			if rtt == nil {
				continue
			}
			measured = measured || i != j
			v.atLeast(fmt.Sprintf("rttMs[%d][%d]", i, j), *rtt, 0)
		}
	}
	if len(v.Nodes) > 1 && len(v.RTTMs) > 0 && !measured {
		v.faults.add("rttMs", "found no measured value between two nodes, expected at least one")
	}
}

func (v *validation) network() {
	if v.Network.Connections < 0 {
		v.faults.add("network.connections", "found %d, expected 0 (a new one for each request) or more", v.Network.Connections)
	}
	if v.Network.ProxyThreads < 0 {
		v.faults.add("network.proxyThreads", "found %d, expected 0 or more", v.Network.ProxyThreads)
	}
	if v.Entry.Gateway != "" {
		v.knownNode("entry.gateway", v.Entry.Gateway)
	}
}

// rhythm checks what is timed: the run and the control loop.
func (v *validation) rhythm() {
	if v.Timing.Duration <= 0 {
		v.faults.add("timing.duration", "found %v, expected more than 0s", v.Timing.Duration)
	} else if v.Timing.Drop >= v.Timing.Duration {
		v.faults.add("timing.drop", "found %v, expected less than the duration (%v)", v.Timing.Drop, v.Timing.Duration)
	}
	c := v.Control
	if c.Period == 0 {
		return
	}
	if c.Scrape <= 0 {
		v.faults.add("control.scrape", "found %v, expected more than 0s", c.Scrape)
	}
	if c.Window < 2*c.Scrape || c.Window <= 0 {
		v.faults.add("control.window", "found %v, expected at least two scrapes (%v): a rate needs two samples", c.Window, 2*c.Scrape)
	}
}

func (v *validation) antagonists() {
	for i, a := range v.Antagonists {
		field := fmt.Sprintf("antagonists[%d]", i)
		if len(a.Nodes) == 0 {
			v.faults.add(field+".nodes", "found none, expected at least one")
		}
		for j, n := range a.Nodes {
			v.knownNode(fmt.Sprintf("%s.nodes[%d]", field, j), n)
		}
		if a.Inflate != 0 {
			v.atLeast(field+".inflate", a.Inflate, 1)
		}
		v.atLeast(field+".stealCores", a.StealCores, 0)
		if a.Inflate == 0 && a.StealCores == 0 {
			v.faults.add(field, "found neither inflate nor stealCores, expected at least one")
		}
		v.span(field+".burst", a.BurstMin, a.BurstMax)
		v.span(field+".pause", a.PauseMin, a.PauseMax)
	}
}

// span checks the fields <prefix>Min and <prefix>Max.
func (v *validation) span(prefix string, lo, hi workloads.Duration) {
	if lo <= 0 {
		v.faults.add(prefix+"Min", "found %v, expected more than 0s", lo)
	}
	if hi < lo {
		v.faults.add(prefix+"Max", "found %v, expected at least %sMin (%v)", hi, prefix[strings.LastIndex(prefix, ".")+1:], lo)
	}
}

// methods checks methods, compare and baseline.
func (v *validation) methods() {
	for _, name := range slices.Sorted(maps.Keys(v.Methods)) {
		field, m := "methods."+name, v.Methods[name]
		v.name(field, name)
		switch _, err := policy.New(m.Policy, m.Params); {
		case m.Policy == "":
			v.faults.add(field+".policy", "found none, expected one of %s", strings.Join(policy.Names(), ", "))
		case err != nil:
			v.faults.addErr(field, "", err)
		case slices.Contains(policy.Names(), name) && m.Policy != name:
			v.faults.add(field, "found policy %q under the name of another policy, expected a name of its own", m.Policy)
		}
		for _, app := range slices.Sorted(maps.Keys(v.Apps)) {
			if m.Placement == "" {
				break
			}
			if _, known := v.Apps[app].Placements[m.Placement]; !known {
				v.faults.add(field+".placement", "found %q, which app %q does not have, expected one of %s", m.Placement, app,
					strings.Join(slices.Sorted(maps.Keys(v.Apps[app].Placements)), ", "))
			}
		}
		if m.Connections != nil && *m.Connections < 0 {
			v.faults.add(field+".connections", "found %d, expected 0 or more", *m.Connections)
		}
	}
	if len(v.Compare) == 0 {
		v.faults.add("compare", "found none, expected method names or all")
	}
	for i, name := range v.Compare {
		v.oneOf(fmt.Sprintf("compare[%d]", i), "method", name, append(v.methodNames(), allMethods))
		if slices.Contains(v.Compare[:i], name) {
			v.faults.add(fmt.Sprintf("compare[%d]", i), "found %q twice, expected each method once", name)
		}
	}
	if v.Baseline != "" {
		v.oneOf("baseline", "method", v.Baseline, v.methodNames())
	}
}

func (v *validation) thresholds() {
	for i, t := range v.Thresholds {
		field := fmt.Sprintf("thresholds[%d]", i)
		if v.oneOf(field+".app", "app", t.App, slices.Sorted(maps.Keys(v.Apps))) && !slices.Contains(v.Apps[t.App].RPS, t.RPS) {
			v.faults.add(field+".rps", "found %v, expected one of the app's rates %v", t.RPS, v.Apps[t.App].RPS)
		}
		v.oneOf(field+".method", "method", t.Method, v.methodNames())
		v.oneOf(field+".metric", "metric", t.Metric, thresholdMetrics)
		v.atLeast(field+".max", t.Max, 0)
	}
}
