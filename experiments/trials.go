package experiments

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"heartbed/testbed"
)

// ResultVersion is part of every trial's ID. Raising it makes earlier results
// stale; do so when the same plan gives other numbers than before.
const ResultVersion = 2

// Planned is a trial with all that is needed to run it.
type Planned struct {
	Trial
	Plan     testbed.Plan
	Method   Method
	Warnings []string // travel with the result
}

// Trials lists the runs of a scenario on a backend in the order in which they
// are run: repetition by repetition, so that an interrupted experiment has
// every cell, and block by block inside a repetition. Every other repetition has
// the apps backwards: a backend keeps what stands for the next trial on the same
// nodes, and apps may be scaled to different ones. The trials of a block
// (same app, rate and repetition) share the seed of arrivals and service times
// and run in shuffled order, so that drift of the machine favours no method.
func (s Scenario) Trials(backend string) ([]Planned, error) {
	var trials []Planned
	placed := map[string]placed{} // app and method -> where its replicas are
	apps := slices.Sorted(maps.Keys(s.Apps))
	for rep := 1; rep <= s.Repetitions; rep++ {
		if rep > 1 {
			slices.Reverse(apps)
		}
		for _, app := range apps {
			for _, rps := range s.Apps[app].RPS {
				for _, method := range s.shuffled(app, rps, rep) {
					key := app + "\x00" + method
					if _, done := placed[key]; !done {
						at, err := s.place(app, method)
						if err != nil {
							return nil, err
						}
						placed[key] = at
					}
					t, err := s.plan(Trial{Scenario: s.Name, App: app, Backend: backend, Policy: method, RPS: rps, Rep: rep, Scale: cmp.Or(s.Apps[app].Scale, s.Scale)}, placed[key])
					if err != nil {
						return nil, err
					}
					trials = append(trials, t)
				}
			}
		}
	}
	return trials, nil
}

// shuffled gives the methods in the order in which a block runs them.
func (s Scenario) shuffled(app string, rps float64, rep int) []string {
	order := slices.Clone(s.Compare)
	rng := rand.New(rand.NewPCG(s.blockSeed(app, rps, rep), 0))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// blockSeed is the seed of a block, derived from the scenario's. Every rate
// and repetition has another one: with a common seed the same few connections
// would meet the same replicas at every rate, and chance would look like a
// property of the method. 32 bits, so that every JSON reader keeps it exact.
func (s Scenario) blockSeed(app string, rps float64, rep int) uint64 {
	h := sha256.Sum256(fmt.Appendf(nil, "%d %s %x %d", s.Seed, app, math.Float64bits(rps), rep))
	return uint64(binary.BigEndian.Uint32(h[:4]))
}

// plan completes a trial of which all but ID and Seed are set.
func (s Scenario) plan(t Trial, at placed) (Planned, error) {
	t.Seed = s.blockSeed(t.App, t.RPS, t.Rep)
	method, _ := s.method(t.Policy)
	p := Planned{Trial: t, Method: method, Warnings: s.Warnings()}
	p.Plan = testbed.Plan{
		App: at.app, Nodes: s.Nodes, RTT: s.rtt(), Replicas: at.replicas,
		Network: s.Network, Entry: s.Entry, Load: s.Load, RPS: t.RPS,
		Timing: s.Timing, Control: s.Control, Antagonists: s.Antagonists, Seed: t.Seed,
	}
	if method.Connections != nil {
		p.Plan.Network.Connections = *method.Connections
	}
	if profile := s.Apps[t.App].Profile; profile != nil {
		p.Plan.Load.Profile = profile
	}
	p.Plan.Timing.Duration = cmp.Or(s.Apps[t.App].Duration, s.Timing.Duration)
	p.Plan.Autoscale = s.autoscale(method, p.Plan)
	if t.Scale > 1 {
		p.Plan = scaled(p.Plan, t.Scale)
		p.Warnings = append(p.Warnings, scaleWarning(t.Scale))
	}
	var err error
	p.ID, err = p.hash()
	return p, err
}

// hash gives the first 16 hex digits of the SHA-256 of all that determines
// the outcome of a trial and of its name.
func (p Planned) hash() (string, error) {
	p.Trial.ID = ""
	content, err := json.Marshal(struct {
		Version int
		Trial   Trial
		Plan    testbed.Plan
		Policy  string
		Params  map[string]string
	}{ResultVersion, p.Trial, p.Plan, p.Method.Policy, p.Method.Params})
	if err != nil {
		return "", fmt.Errorf("hash trial %s: %w", p.title(), err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:8]), nil
}
