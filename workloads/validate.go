package workloads

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// faults collects what is wrong with an input, so that all is said at once.
type faults struct {
	prefix string
	errs   []error
}

func (f *faults) add(format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf(f.prefix+format, args...))
}

func (f *faults) join() error { return errors.Join(f.errs...) }

// positive reports a value that is not a finite number above zero.
func (f *faults) positive(field string, v float64) {
	if !(v > 0) || math.IsInf(v, 0) {
		f.add("%s: found %v, expected a number above 0", field, v)
	}
}

// notNegative reports a value that is not a finite number of at least zero.
func (f *faults) notNegative(field string, v float64) {
	if !(v >= 0) || math.IsInf(v, 0) {
		f.add("%s: found %v, expected a number of 0 or more", field, v)
	}
}

// Validate reports every fault of the application, joined; each names its
// field, what was found and what is expected.
func (a Application) Validate() error {
	f := &faults{prefix: fmt.Sprintf("application %q: ", a.Name)}
	names := map[string]bool{}
	for _, c := range a.Components {
		if c.Name == "" {
			f.add("components: found one without a name")
		}
		if names[c.Name] {
			f.add("components: %q is listed twice", c.Name)
		}
		names[c.Name] = true
	}
	if len(a.Components) == 0 {
		f.add("components: found none, expected at least one")
	} else if !names[a.Entry] {
		f.add("entry: found %q, expected one of the components", a.Entry)
	}
	for _, c := range a.Components {
		a.validateComponent(f, c, names)
	}
	if cycle := a.cycle(); cycle != nil {
		f.add("components: the call graph has a cycle %s, expected none", strings.Join(cycle, " -> "))
	}
	a.ServiceTime.validate(f)
	a.Server.validate(f)
	return f.join()
}

func (a Application) validateComponent(f *faults, c Component, names map[string]bool) {
	if c.Replicas < 1 {
		f.add("components.%s.replicas: found %d, expected 1 or more", c.Name, c.Replicas)
	}
	if len(c.Steps) == 0 {
		f.add("components.%s.steps: found none, expected CPU work or a call", c.Name)
	}
	for i, s := range c.Steps {
		field := fmt.Sprintf("components.%s.steps[%d]", c.Name, i)
		kinds := 0
		if s.CPUMs != 0 {
			kinds++
			f.positive(field+".cpuMs", s.CPUMs)
		}
		if len(s.Call) > 0 {
			kinds++
		}
		if len(s.Choose) > 0 {
			kinds++
			sum := 0.0
			for _, to := range SortedNames(s.Choose) {
				sum += s.Choose[to]
			}
			if !(math.Abs(sum-1) < 1e-9) {
				f.add("%s.choose: the probabilities add up to %v, expected 1", field, sum)
			}
		}
		if kinds != 1 {
			f.add("%s: found %d of cpuMs, call and choose, expected exactly one", field, kinds)
		}
		if !(s.Probability >= 0 && s.Probability <= 1) {
			f.add("%s.probability: found %v, expected 0 to 1", field, s.Probability)
		} else if s.Probability != 0 && s.CPUMs != 0 {
			f.add("%s.probability: found %v on CPU work, expected it on a call only", field, s.Probability)
		}
		for _, to := range s.Call {
			if !names[to] {
				f.add("%s.call: component %q is not listed", field, to)
			}
		}
		for _, to := range SortedNames(s.Choose) {
			if !names[to] {
				f.add("%s.choose: component %q is not listed", field, to)
			}
			if p := s.Choose[to]; !(p >= 0 && p <= 1) {
				f.add("%s.choose.%s: found %v, expected 0 to 1", field, to, p)
			}
		}
	}
}

// cycle returns the components of a cycle of the call graph, first repeated
// at the end, or nil.
func (a Application) cycle() []string {
	next := map[string][]string{}
	for _, c := range a.Calls() {
		next[c.From] = append(next[c.From], c.To)
	}
	const open, done = 1, 2
	state := map[string]int{}
	var walk func(name string, path []string) []string
	walk = func(name string, path []string) []string {
		path = append(path, name)
		switch state[name] {
		case done:
			return nil
		case open:
			return path[slices.Index(path, name):]
		}
		state[name] = open
		for _, to := range next[name] {
			if found := walk(to, path); found != nil {
				return found
			}
		}
		state[name] = done
		return nil
	}
	for _, c := range a.Components {
		if found := walk(c.Name, nil); found != nil {
			return found
		}
	}
	return nil
}

func (d Distribution) validate(f *faults) {
	switch d.Kind {
	case "", "deterministic", "exponential":
	case "lognormal":
		f.notNegative("serviceTime.cv", d.CV)
	default:
		f.add("serviceTime.kind: found %q, expected deterministic, exponential or lognormal", d.Kind)
	}
}

func (s Server) validate(f *faults) {
	if s.Slots < 0 {
		f.add("server.slots: found %d, expected 0 (no limit) or more", s.Slots)
	}
	f.positive("server.threads", s.Threads)
	f.notNegative("server.limitCores", s.LimitCores)
	if s.LimitCores == 0 && (s.Period != 0 || s.Burst != 0) {
		f.add("server.limitCores: found 0 with a period or burst, expected a quota")
	}
}

// Validate reports every fault of the load, joined.
func (l Load) Validate() error {
	f := &faults{prefix: "load."}
	switch l.Schedule {
	case "wrk2":
		if l.Threads < 1 {
			f.add("threads: found %d, expected 1 or more", l.Threads)
		}
		if l.Connections < max(1, l.Threads) {
			f.add("connections: found %d, expected at least one a thread (%d)", l.Connections, l.Threads)
		}
		if len(l.Profile) > 0 || l.Recorded != nil {
			f.add("profile: found one with the wrk2 schedule, expected none: wrk2 keeps one rate (use open)")
		}
		if l.Arrivals != "" {
			f.add("arrivals: found %q with the wrk2 schedule, expected none", l.Arrivals)
		}
	case "open":
		if l.Arrivals != "even" && l.Arrivals != "poisson" {
			f.add("arrivals: found %q, expected even or poisson", l.Arrivals)
		}
	default:
		f.add("schedule: found %q, expected wrk2 or open", l.Schedule)
	}
	l.validateRecorded(f)
	for i, p := range l.Profile {
		f.notNegative(fmt.Sprintf("profile[%d].factor", i), p.Factor)
		switch {
		case i == 0 && p.At != 0:
			f.add("profile[0].at: found %v, expected 0s", p.At)
		case i > 0 && p.At <= l.Profile[i-1].At:
			f.add("profile[%d].at: found %v, expected later than %v", i, p.At, l.Profile[i-1].At)
		}
	}
	return f.join()
}

func (l Load) validateRecorded(f *faults) {
	if l.Recorded == nil {
		return
	}
	if len(l.Profile) > 0 {
		f.add("recorded: found one beside a profile, expected one of the two")
	}
	f.positive("recorded.interval", l.Recorded.Interval.Seconds())
	if n := len(l.Recorded.RPS); n > 0 && l.Recorded.Interval.Std() > farthest/time.Duration(n) {
		f.add("recorded.interval: found %v for %d rates, expected at most %v in all", l.Recorded.Interval, n, farthest)
	}
	sum := 0.0
	for i, r := range l.Recorded.RPS {
		f.notNegative(fmt.Sprintf("recorded.rps[%d]", i), r)
		sum += r
	}
	f.positive("sum of recorded.rps", sum)
}
