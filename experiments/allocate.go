package experiments

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"heartbed/heart"
	"heartbed/heart/policy"
)

// Allocation is what a policy decided after the last window of a recording.
type Allocation struct {
	Routes   []AllocatedRoute   `json:"routes"`
	Stages   heart.Stages       `json:"stages"`
	Seconds  map[string]float64 `json:"seconds"` // stage -> seconds of the last step, and their total
	Warnings []string           `json:"warnings,omitempty"`
}

// AllocatedRoute is a route with its shares as fractions.
type AllocatedRoute struct {
	From     string           `json:"from"`
	To       string           `json:"to"`
	Balancer heart.Balancer   `json:"balancer"`
	Shares   []AllocatedShare `json:"shares"`
}

// AllocatedShare is the part of a route's requests that goes to a group. The
// shares of a route add up to 1; groups that get nothing are left out.
type AllocatedShare struct {
	To     string  `json:"to"`
	Share  float64 `json:"share"`
	Weight uint32  `json:"weight"`
}

// Allocate steps a policy over the windows of the recording in a file and
// returns the last decision. The file's format is that of Recording. Faults of
// the file, the policy's name and its parameters come back together as Faults.
func Allocate(path, policyName string, params map[string]string, now func() time.Time) (Allocation, error) {
	rec, err := ReadRecording(path)
	p, policyErr := policy.New(policyName, params)
	if err := joinFaults(err, policyErr); err != nil {
		return Allocation{}, err
	}
	var a Allocation
	warned := map[string]bool{}
	for i, o := range rec.Observations() {
		m := &heart.Meter{Now: now}
		m.Start()
		d, err := p.Allocate(o, m)
		if err != nil {
			return Allocation{}, fmt.Errorf("window %d: %w", i+1, err)
		}
		if err := d.Table.Validate(o.Topology); err != nil {
			return Allocation{}, fmt.Errorf("window %d: table of policy %s: %w", i+1, policyName, err)
		}
		a.Routes, a.Stages, a.Seconds = allocatedRoutes(d.Table), d.Stages, withTotal(m.Seconds)
		for _, w := range slices.Concat(o.Warnings, d.Warnings) {
			if !warned[w] {
				warned[w] = true
				a.Warnings = append(a.Warnings, w)
			}
		}
	}
	return a, nil
}

// joinFaults puts the faults of a policy's name and parameters behind those of
// a file.
func joinFaults(file, policyErr error) error {
	if policyErr == nil {
		return file
	}
	var faults Faults
	switch f := file.(type) {
	case nil:
	case Faults:
		faults = f
	default:
		faults.add("", "%v", file)
	}
	faults.addErr("", "", policyErr)
	return faults
}

func allocatedRoutes(table heart.RoutingTable) []AllocatedRoute {
	routes := make([]AllocatedRoute, len(table.Routes))
	for i, r := range table.Routes {
		sum := uint64(0)
		for _, s := range r.Shares {
			sum += uint64(s.Weight)
		}
		routes[i] = AllocatedRoute{From: r.From, To: r.To, Balancer: r.Balancer}
		for _, s := range r.Shares {
			routes[i].Shares = append(routes[i].Shares, AllocatedShare{s.To, float64(s.Weight) / float64(sum), s.Weight})
		}
	}
	return routes
}

func withTotal(seconds map[string]float64) map[string]float64 {
	total := 0.0
	for _, stage := range slices.Sorted(maps.Keys(seconds)) {
		total += seconds[stage]
	}
	if seconds != nil {
		seconds["total"] = total
	}
	return seconds
}
