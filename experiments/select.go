package experiments

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"heartbed/heart/policy"
	"heartbed/workloads"
)

// allMethods in place of method names means every registered policy.
const allMethods = "all"

// Selection narrows or overrides a scenario for one run. The zero value runs
// the scenario as it is written.
type Selection struct {
	Apps        []string  // nil = all
	Methods     []string  // names of methods or policies, or "all"; nil = the scenario's compare
	RPS         []float64 // requests a second, for every app; nil = each app's own
	Repetitions int       // 0 = the scenario's
	Seed        *uint64   // nil = the scenario's
	Warmup      *time.Duration
	Duration    *time.Duration
	Scale       float64 // 0 = the scenario's
	Quick       bool    // at most quickRepetitions and a shorter measured time
	Short       bool    // the scenario's short form; what else is selected overrides it
}

// What --quick leaves of a scenario.
const (
	quickRepetitions = 2
	quickShare       = 4 // the measured time is divided by this
	quickMinimum     = 20 * time.Second
)

// Select applies a selection. The scenario it returns describes exactly what
// will be run and is valid if s is; all faults of the selection come at once.
func (s Scenario) Select(sel Selection) (Scenario, error) {
	var faults Faults
	if sel.Short {
		s = s.shorten(&faults)
	}
	s.Short = nil // the result says what it is, not what it could be
	s = s.retime(sel, &faults)
	s.Compare = s.selectMethods(sel.Methods, &faults)
	apps := sel.Apps
	if apps == nil {
		apps = slices.Sorted(maps.Keys(s.Apps))
	}
	chosen := map[string]App{}
	for _, name := range apps {
		app, known := s.Apps[name]
		if !known {
			faults.add("app", "found %q, expected one of %s", name, strings.Join(slices.Sorted(maps.Keys(s.Apps)), ", "))
		}
		if sel.RPS != nil {
			app.RPS = sel.RPS
		}
		if sel.Scale != 0 {
			app.Scale = 0 // the selection's holds for all
		}
		chosen[name] = app
	}
	s.Apps = chosen
	for _, rps := range sel.RPS {
		if !(rps > 0) || math.IsInf(rps, 0) {
			faults.add("rps", "found %v, expected a number above 0", rps)
		}
	}
	s.Thresholds = slices.DeleteFunc(slices.Clone(s.Thresholds), func(t Threshold) bool {
		return !slices.Contains(chosen[t.App].RPS, t.RPS) || !slices.Contains(s.Compare, t.Method)
	})
	if err := faults.err(); err != nil {
		return Scenario{}, err
	}
	return s, s.Validate()
}

// shorten gives the scenario's short form.
func (s Scenario) shorten(faults *Faults) Scenario {
	short := s.Short
	if short == nil {
		faults.add("short", "found no short form in scenario %s; --quick cuts any scenario down", s.Name)
		return s
	}
	s.Quick = true
	s.Repetitions, s.Timing, s.Control = short.Repetitions, short.Timing, short.Control
	if len(short.Compare) > 0 {
		s.Compare = short.Compare
	}
	apps := map[string]App{}
	for name, a := range short.Apps {
		app, here := s.Apps[name]
		if !here {
			continue
		}
		app.RPS, app.Scale = a.RPS, a.Scale
		apps[name] = app
	}
	s.Apps = apps
	return s
}

// retime applies what a selection says about repetitions, seed and times.
func (s Scenario) retime(sel Selection, faults *Faults) Scenario {
	if sel.Repetitions < 0 {
		faults.add("reps", "found %d, expected 1 or more", sel.Repetitions)
	}
	if sel.Quick {
		s.Quick = true
		s.Repetitions = min(s.Repetitions, quickRepetitions)
		measured := (s.Timing.Duration - s.Timing.Drop).Std()
		shorter := min(measured, max(measured/quickShare, quickMinimum))
		s.Timing.Duration = s.Timing.Drop + workloads.Duration(shorter)
	}
	if sel.Repetitions > 0 {
		s.Repetitions = sel.Repetitions
	}
	if sel.Seed != nil {
		s.Seed = *sel.Seed
	}
	if sel.Warmup != nil {
		s.Timing.Warmup = workloads.Duration(*sel.Warmup)
	}
	if sel.Duration != nil {
		s.Timing.Duration = workloads.Duration(*sel.Duration)
		s.Apps = maps.Clone(s.Apps)
		for name, app := range s.Apps {
			app.Duration = 0
			s.Apps[name] = app
		}
	}
	if sel.Scale != 0 {
		s.Scale = sel.Scale
	}
	if s.Timing.Warmup < 0 {
		faults.add("warmup", "found %v, expected 0s or more", s.Timing.Warmup)
	}
	return s
}

// selectMethods resolves "all" and reports names that are no method.
func (s Scenario) selectMethods(names []string, faults *Faults) []string {
	if names == nil {
		names = s.Compare
	}
	var methods []string
	for _, name := range names {
		expanded := []string{name}
		if name == allMethods {
			expanded = policy.Names()
		}
		for _, m := range expanded {
			if _, known := s.method(m); !known {
				faults.add("policy", "found %q, expected one of %s", m, strings.Join(append(s.methodNames(), allMethods), ", "))
			} else if !slices.Contains(methods, m) {
				methods = append(methods, m)
			}
		}
	}
	return methods
}

// method gives a method of the scenario, or a registered policy by its name.
func (s Scenario) method(name string) (Method, bool) {
	if m, own := s.Methods[name]; own {
		return m, true
	}
	return Method{Policy: name}, slices.Contains(policy.Names(), name)
}

// methodNames lists the names method knows, in alphabetical order.
func (s Scenario) methodNames() []string {
	names := slices.AppendSeq(policy.Names(), maps.Keys(s.Methods))
	slices.Sort(names)
	return slices.Compact(names)
}

// title of a run's cell, for messages.
func (t Trial) title() string {
	return fmt.Sprintf("%s %s at %v RPS, repetition %d", t.App, t.Policy, t.RPS, t.Rep)
}
