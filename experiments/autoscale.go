package experiments

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"heartbed/testbed"
	"heartbed/workloads"
)

// Scaling is what became of the replicas of the scaled component under a load
// that changes. Areas and delays follow the published test report of
// activescale; target is the rate over what a replica is meant to serve.
type Scaling struct {
	// CoveragePct is the part of the replica-seconds needed beyond those at the
	// start of each scale-out phase that were ready: 100 (1 - unmet / needed), at
	// least 0.
	// A phase lasts from a rise of the rate in the measured time until it falls.
	CoveragePct float64 `json:"coveragePct"`
	// StartSeconds is from the first rise until one more replica is ready, and
	// MaxSeconds from the rise to the highest rate until as many are ready as
	// that needs; nil = never before the rate fell.
	StartSeconds *float64 `json:"startSeconds"`
	MaxSeconds   *float64 `json:"maxSeconds"`
	// PeakSeconds is how long the highest rate lasts.
	PeakSeconds float64 `json:"peakSeconds"`
	// Replica-seconds of the measured time below the target, by ready replicas,
	// and above it, by those that exist.
	UnderReplicaSeconds float64      `json:"underReplicaSeconds"`
	OverReplicaSeconds  float64      `json:"overReplicaSeconds"`
	Replicas            []ReplicasAt `json:"replicas"`
}

// ReplicasAt is the replicas of the scaled component from a moment on.
type ReplicasAt struct {
	AtSeconds float64 `json:"atSeconds"` // since the start of the measured load
	Target    float64 `json:"target"`    // needed at the rate
	Pods      int     `json:"pods"`      // that exist
	Ready     int     `json:"ready"`
}

// autoscale is the scenario's with what the method and the load add; nil = the
// scenario has none.
func (s Scenario) autoscale(m Method, p testbed.Plan) *testbed.Autoscale {
	if s.Autoscale == nil || m.Scaler == nil {
		return nil
	}
	a := *s.Autoscale
	a.Scaler, a.WaitForStep, a.Ramp = *m.Scaler, m.WaitForStep, m.Ramp
	if a.Initial == 0 && len(p.Load.Profile) > 0 {
		a.Initial = max(a.Min, int(math.Ceil(p.RPS*p.Load.Profile[0].Factor/a.RPSPerReplica)))
	}
	return &a
}

// scaling judges the replicas of a run against its load; nil = they stayed.
func scaling(p testbed.Plan, points []testbed.ScalePoint) *Scaling {
	if p.Autoscale == nil || len(points) == 0 {
		return nil
	}
	end := p.Timing.Duration.Std()
	steps := replicasOver(p, points, end)
	s := &Scaling{Replicas: steps}
	var unmet, needed float64
	base, phase, before := 0.0, 0, 0.0 // phase 0 = none yet
	rising, dropped := false, p.Timing.Drop.Std().Seconds()
	var from, risen float64 // of the first phase, and to the highest rate
	peak := highest(p)
	ready := 0
	for i, at := range steps {
		until := end.Seconds()
		if i+1 < len(steps) {
			until = steps[i+1].AtSeconds
		}
		length := until - at.AtSeconds
		switch {
		case at.AtSeconds >= dropped && at.Target > before && !rising && i > 0:
			rising, base = true, before
			if phase++; phase == 1 {
				from, ready = at.AtSeconds, steps[i-1].Ready
			}
		case at.Target < before:
			rising = false
		}
		if at.Target == peak && before < peak {
			risen = at.AtSeconds
		}
		before = at.Target
		if at.Target == peak {
			s.PeakSeconds += length
		}
		if rising {
			needed += (at.Target - base) * length
			unmet += max(0, at.Target-float64(at.Ready)) * length
			if phase == 1 && s.StartSeconds == nil && at.Ready > ready {
				s.StartSeconds = since(at.AtSeconds, from)
			}
			if s.MaxSeconds == nil && at.Target == peak && float64(at.Ready) >= peak {
				s.MaxSeconds = since(at.AtSeconds, risen)
			}
		}
		if measured := until - max(at.AtSeconds, dropped); measured > 0 {
			s.UnderReplicaSeconds += max(0, at.Target-float64(at.Ready)) * measured
			s.OverReplicaSeconds += max(0, float64(at.Pods)-at.Target) * measured
		}
	}
	if needed > 0 {
		s.CoveragePct = max(0, 100*(1-unmet/needed)) // replicas that were lost can make it negative
	}
	return s
}

func since(at, from float64) *float64 {
	d := at - from
	return &d
}

// replicasOver lays the replicas over the targets of the load.
func replicasOver(p testbed.Plan, points []testbed.ScalePoint, end time.Duration) []ReplicasAt {
	profile := p.Load.Profile
	if len(profile) == 0 {
		profile = []workloads.RatePoint{{Factor: 1}}
	}
	var moments []time.Duration
	for _, r := range profile {
		moments = append(moments, r.At.Std())
	}
	for _, at := range points {
		moments = append(moments, at.At)
	}
	slices.Sort(moments)
	var steps []ReplicasAt
	for _, now := range slices.Compact(moments) {
		if now >= end {
			break
		}
		step := ReplicasAt{AtSeconds: now.Seconds()}
		for _, r := range profile {
			if r.At.Std() <= now {
				step.Target = p.RPS * r.Factor / p.Autoscale.RPSPerReplica
			}
		}
		for _, at := range points {
			if at.At <= now {
				step.Pods, step.Ready = at.Pods, at.Ready
			}
		}
		steps = append(steps, step)
	}
	return steps
}

// highest is the target of the load's highest rate.
func highest(p testbed.Plan) float64 {
	most := 0.0
	for _, r := range p.Load.Profile {
		most = max(most, r.Factor)
	}
	if len(p.Load.Profile) == 0 {
		most = 1
	}
	return p.RPS * most / p.Autoscale.RPSPerReplica
}

// pattern checks an app's own load over time.
func (v *validation) pattern(field string, a App) {
	if l := v.Load; a.Profile != nil && l.Validate() == nil {
		l.Profile = a.Profile
		v.faults.addErr(field, "", l.Validate())
	}
	if a.Duration != 0 && a.Duration <= v.Timing.Drop {
		v.faults.add(field+".duration", "found %v, expected more than is dropped (%v)", a.Duration, v.Timing.Drop)
	}
}

// scaling checks autoscale and the scalers of the methods.
func (v *validation) scaling() {
	for _, name := range slices.Sorted(maps.Keys(v.Methods)) {
		if m := v.Methods[name]; m.Scaler != nil && v.Autoscale == nil {
			v.faults.add("methods."+name+".scaler", "found one without autoscale, expected autoscale in the scenario")
		}
	}
	if v.Autoscale == nil {
		return
	}
	a := *v.Autoscale
	if a.StartMin < 0 || a.StartMax < a.StartMin {
		v.faults.add("autoscale.startMax", "found %v to %v, expected times of 0s or more, the later not below the earlier", a.StartMin, a.StartMax)
	}
	if a.DiesAt < 0 {
		v.faults.add("autoscale.diesAt", "found %d, expected 0 (never) or more", a.DiesAt)
	}
	if a.ColdFactor != 0 {
		v.atLeast("autoscale.coldFactor", a.ColdFactor, 1)
	}
	v.above("autoscale.rpsPerReplica", a.RPSPerReplica)
	if v.Scale > 1 {
		v.faults.add("scale", "found %v, expected none: the targets of the scalers are for whole replicas", v.Scale)
	}
	if (a.ScaleUp == nil) != (a.ScaleDown == nil) {
		v.faults.add("autoscale", "found one of scaleUp and scaleDown, expected both or none")
	}
	for i, name := range v.Compare {
		m, known := v.method(name)
		field := fmt.Sprintf("compare[%d]", i)
		switch {
		case !known: // said elsewhere
		case m.Scaler == nil:
			v.faults.add(field, "found method %q without a scaler, expected one in a scenario with autoscale", name)
		default:
			a.Scaler = *m.Scaler
			v.faults.addErr(field, "", a.Config(a.Min, 0).Validate())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Apps)) {
		app, err := v.Apps[name].application()
		if err != nil {
			continue // said elsewhere
		}
		if !slices.ContainsFunc(app.Components, func(c workloads.Component) bool { return c.Name == a.Component }) {
			v.faults.add("autoscale.component", "found %q, which app %q does not have", a.Component, name)
		}
		if a.Component == app.Entry && v.Entry.Gateway == "" {
			v.faults.add("entry.gateway", "found none where the entry component is scaled, expected a node")
		}
	}
}
