package testbed

import (
	"errors"
	"fmt"
	"time"

	"heartbed/activescale/scaler"
	"heartbed/workloads"
)

// Autoscale makes the number of a component's replicas follow the load.
// Plan.Replicas lists as many of them as there may be at once, in the order in
// which they are added.
type Autoscale struct {
	Component string `yaml:"component"`
	Min       int    `yaml:"min"`
	// Initial is how many replicas stand and are ready before the load; 0 = Min.
	Initial int `yaml:"initial,omitempty"`
	// StartMin to StartMax is how long a replica takes from its creation until
	// it is ready, uniform.
	StartMin workloads.Duration `yaml:"startMin"`
	StartMax workloads.Duration `yaml:"startMax"`
	// DiesAt is how many requests in flight kill a replica for want of memory;
	// it is started again, later each time, as the kubelet does. 0 = none.
	DiesAt int `yaml:"diesAt,omitempty"`
	// ColdFactor multiplies the CPU time of requests on a replica that has just
	// become ready and falls to 1 over ColdFor; 0 = 1.
	ColdFactor float64            `yaml:"coldFactor,omitempty"`
	ColdFor    workloads.Duration `yaml:"coldFor,omitempty"`
	// RPSPerReplica is what a replica is meant to serve: the replicas needed at
	// a rate are the rate over it. No scaler knows it.
	RPSPerReplica float64 `yaml:"rpsPerReplica"`
	// RequestCores is the CPU request of a replica.
	RequestCores float64 `yaml:"requestCores"`
	// Targets of the scalers: requests in flight a replica, and CPU in percent
	// of its request.
	TargetActive float64 `yaml:"targetActive"`
	TargetCPU    float64 `yaml:"targetCPU"`
	// ScaleUp and ScaleDown are the behavior of every HPA; nil both = none.
	ScaleUp   *ScaleRules `yaml:"scaleUp,omitempty"`
	ScaleDown *ScaleRules `yaml:"scaleDown,omitempty"`
	// Scaler is the method's.
	Scaler Scaler `yaml:"-"`
	// WaitForStep leaves a new replica without requests until the controller's
	// next step; else the controller steps when replicas become ready or go.
	WaitForStep bool `yaml:"-"`
	// Ramp is the time over which a new replica's part of the requests grows
	// from nothing to its whole, from when it is ready; 0 = whole at once.
	Ramp workloads.Duration `yaml:"-"`
}

// ScaleRules are one direction of an HPA's behavior.
type ScaleRules struct {
	Stabilization workloads.Duration `yaml:"stabilization"`
	Policies      []ScalePolicy      `yaml:"policies"`
}

// ScalePolicy bounds the change within a period, by pods or by percent.
type ScalePolicy struct {
	Pods    int                `yaml:"pods,omitempty"`
	Percent int                `yaml:"percent,omitempty"`
	Period  workloads.Duration `yaml:"period"`
}

// Scaler is what decides, and its delays.
type Scaler struct {
	Kind string `yaml:"kind"` // cpu, activescale, keda or kpa
	// Every is the period of collection: metrics-server's resolution, Envoy's
	// flush, Prometheus' scrape. Knative's is fixed.
	Every workloads.Duration `yaml:"every,omitempty"`
	// Poll is KEDA's polling interval with cached metrics; 0 = not cached.
	Poll workloads.Duration `yaml:"poll,omitempty"`
	// Limit is Knative's container concurrency: more requests wait at the
	// activator. 0 = no limit.
	Limit int `yaml:"limit,omitempty"`
}

// ScalePoint is the replicas of the scaled component from a moment on.
type ScalePoint struct {
	At time.Duration // since the start of the measured load; the first may be earlier
	// Wanted by the scaler, Pods that exist, Ready ones.
	Wanted, Pods, Ready int
}

// Config is the scaler's, for a number of places for replicas. Phases of its
// periods follow the seed.
func (a Autoscale) Config(places int, seed uint64) scaler.Config {
	c := scaler.Config{
		Kind: a.Scaler.Kind, Min: a.Min, Max: places, Seed: seed, Target: a.TargetActive, RequestCores: a.RequestCores,
		Every: a.Scaler.Every.Std(), Poll: a.Scaler.Poll.Std(), Limit: a.Scaler.Limit,
	}
	if c.Kind == scaler.KindCPU {
		c.Target = a.TargetCPU
	}
	if a.ScaleUp != nil && a.ScaleDown != nil {
		c.Behavior = &scaler.Behavior{Up: rules(*a.ScaleUp), Down: rules(*a.ScaleDown)}
	}
	return c
}

func rules(r ScaleRules) scaler.Rules {
	out := scaler.Rules{Stabilization: r.Stabilization.Std()}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, scaler.Policy{Pods: p.Pods, Percent: p.Percent, Period: p.Period.Std()})
	}
	return out
}

// first is how many replicas stand at the start.
func (a Autoscale) first() int { return max(a.Initial, a.Min) }

// Started lists which of the plan's replicas are there at the start, by index.
func (p Plan) Started() []bool {
	there := make([]bool, len(p.Replicas))
	left := 0
	if p.Autoscale != nil {
		left = p.Autoscale.first()
	}
	for i, r := range p.Replicas {
		if p.Autoscale == nil || r.Component != p.Autoscale.Component {
			there[i] = true
			continue
		}
		there[i] = left > 0
		left--
	}
	return there
}

// checkAutoscale reports what in the plan's scaling no backend could play.
func (p Plan) checkAutoscale() error {
	a := p.Autoscale
	if a == nil {
		return nil
	}
	var faults []error
	room := 0
	for _, r := range p.Replicas {
		if r.Component == a.Component {
			room++
		}
	}
	if room == 0 {
		return fmt.Errorf("autoscale: found component %q, expected one that has replicas", a.Component)
	}
	if a.Min < 1 || a.first() > room {
		faults = append(faults, fmt.Errorf("autoscale: found %d replicas at the start and at least %d, expected 1 to %d, for which there is room", a.first(), a.Min, room))
	}
	if a.Component == p.App.Entry && p.Entry.Gateway == "" {
		faults = append(faults, errors.New("autoscale: found the entry component without a gateway, expected a gateway: clients keep their connections"))
	}
	return errors.Join(faults...)
}
