package experiments

import (
	"fmt"
	"slices"
	"time"

	"heartbed/testbed"
	"heartbed/workloads"
)

// scaledPeriod is the CFS period of a scaled plan that names none. The usual
// 100 ms would let a replica with a quarter of a core stand still for 75 ms at
// a time, which the scenario's whole core never does.
const scaledPeriod = workloads.Duration(20 * time.Millisecond)

// scaled is the plan on a machine smaller by the factor f: CPU capacity and
// offered load are divided alike, so that utilisation stays. A request costs
// the CPU time it did, so it takes longer; round-trip times stay.
func scaled(p testbed.Plan, f float64) testbed.Plan {
	p.RPS /= f
	p.Nodes = slices.Clone(p.Nodes)
	for i := range p.Nodes {
		p.Nodes[i].Cores /= f
	}
	server := &p.App.Server
	if server.LimitCores == 0 {
		server.LimitCores = server.Threads
	}
	server.LimitCores /= f
	if server.Period == 0 {
		server.Period = scaledPeriod
	}
	server.Burst = workloads.Duration(float64(server.Burst) / f)
	p.Antagonists = slices.Clone(p.Antagonists)
	for i := range p.Antagonists {
		p.Antagonists[i].StealCores /= f
	}
	return p
}

// scaleWarning says what a scale does to the figures; it travels with them.
func scaleWarning(f float64) string {
	return fmt.Sprintf("scaled by %g: CPU capacity and offered load are divided by it, a rate of 100 means %.4g requests a second; utilisation stays, CPU time takes longer", f, 100/f)
}
