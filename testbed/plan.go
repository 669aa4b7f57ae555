package testbed

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"heartbed/heart"
	"heartbed/workloads"
)

// Plan is one trial, resolved: all that a backend needs and all that
// determines the result.
type Plan struct {
	App         workloads.Application `yaml:"app"`
	Nodes       []Node                `yaml:"nodes"`
	RTT         [][]time.Duration     `yaml:"rtt"` // round-trip times in the order of Nodes, none Unmeasured, symmetric
	Replicas    []heart.Replica       `yaml:"replicas"`
	Network     Network               `yaml:"network"`
	Entry       Entry                 `yaml:"entry"`
	Load        workloads.Load        `yaml:"load"`
	RPS         float64               `yaml:"rps"`
	Timing      Timing                `yaml:"timing"`
	Control     Control               `yaml:"control"`
	Antagonists []Antagonist          `yaml:"antagonists"`
	Autoscale   *Autoscale            `yaml:"autoscale,omitempty" json:",omitempty"` // nil = the replicas stay as they are
	Seed        uint64                `yaml:"seed"`                                  // of arrivals, service times and routing draws
}

// Node is a machine of the testbed.
type Node struct {
	Name     string  `yaml:"name"`
	Cores    float64 `yaml:"cores"`
	Slowness float64 `yaml:"slowness"` // CPU time a request relative to the fastest node; 1 = fastest
}

// Network is what lies between replicas besides the round-trip times.
type Network struct {
	// Sidecar is the delay of each traversal of a proxy: two for each
	// direction of a call between components, one at the entry.
	Sidecar workloads.Duration `yaml:"sidecar,omitempty"`
	// SidecarScaled multiplies Sidecar with the node's slowness.
	SidecarScaled bool `yaml:"sidecarScaled,omitempty"`
	// Jitter is the standard deviation of a normal draw that each message
	// between replicas takes longer by if it is above 0; half of them have
	// none. Order on a link is kept.
	Jitter workloads.Duration `yaml:"jitter,omitempty"`
	// Connections is the pool of kept connections from one caller replica to
	// one component, each pinned to a replica under per-connection balancing.
	// 0 = a new connection for every request.
	Connections int `yaml:"connections,omitempty"`
	// ProxyThreads is how many independent least-request counters a caller
	// replica has (Envoy keeps one a worker thread). 0 = 1.
	ProxyThreads int `yaml:"proxyThreads,omitempty"`
}

// Entry is how requests from outside reach the application.
type Entry struct {
	// Gateway is the node of a gateway that takes all requests and is routed
	// like any caller; empty = clients connect to the entry component through
	// kube-proxy: one replica at random for each client connection.
	Gateway string `yaml:"gateway,omitempty"`
	// ClientRTT is the round-trip time from the load generator to any node.
	ClientRTT workloads.Duration `yaml:"clientRtt,omitempty"`
}

// Timing of a run: warm-up at the trial's load, a gap without load, then the
// measured duration of which the first Drop is not counted (wrk2's
// calibration).
type Timing struct {
	Warmup   workloads.Duration `yaml:"warmup"`
	Gap      workloads.Duration `yaml:"gap"`
	Duration workloads.Duration `yaml:"duration"`
	Drop     workloads.Duration `yaml:"drop"`
}

// Control is the controller's rhythm and how its metrics are collected.
type Control struct {
	Period workloads.Duration `yaml:"period"` // between two steps; 0 = one step before the load, none after
	Window workloads.Duration `yaml:"window"` // that an observation covers
	Scrape workloads.Duration `yaml:"scrape"` // between two scrapes of a replica's counters
	Lag    workloads.Duration `yaml:"lag"`    // from a scrape until the controller can see it
}

// Antagonist is other work on some nodes that comes and goes in bursts of
// random length, seeded by the plan.
type Antagonist struct {
	Nodes []string `yaml:"nodes"`
	// Inflate multiplies the CPU time of requests on the node during a burst
	// (contention for caches and memory); 0 = 1.
	Inflate float64 `yaml:"inflate,omitempty"`
	// StealCores takes cores of the node away during a burst. With none left
	// its replicas stand still.
	StealCores float64            `yaml:"stealCores,omitempty"`
	BurstMin   workloads.Duration `yaml:"burstMin"`
	BurstMax   workloads.Duration `yaml:"burstMax"`
	PauseMin   workloads.Duration `yaml:"pauseMin"`
	PauseMax   workloads.Duration `yaml:"pauseMax"`
}

// GatewayComponent is the name under which the gateway appears in a topology.
const GatewayComponent = "gateway"

// Topology is what the controller sees of the plan: nodes, replicas (with the
// gateway as a component of its own), calls and round-trip times.
func (p Plan) Topology() heart.Topology {
	t := heart.Topology{RTT: p.RTT}
	for _, n := range p.Nodes {
		t.Nodes = append(t.Nodes, heart.Node{Name: n.Name, Cores: n.Cores})
	}
	if p.Entry.Gateway != "" {
		t.Replicas = append(t.Replicas, heart.Replica{Name: GatewayComponent, Component: GatewayComponent, Node: p.Entry.Gateway})
		t.Calls = append(t.Calls, heart.Call{From: GatewayComponent, To: p.App.Entry})
	}
	t.Replicas = append(t.Replicas, p.Replicas...)
	t.Calls = append(t.Calls, p.App.Calls()...)
	return t
}

// Validate reports what in the plan's nodes, replicas, round-trip times and
// antagonists no backend could play, joined.
func (p Plan) Validate() error {
	t := p.Topology()
	if err := t.Validate(); err != nil {
		return err
	}
	faults := []error{p.checkSymmetry(), p.checkAutoscale()}
	at := t.NodeIndex()
	for i, a := range p.Antagonists {
		for _, name := range a.Nodes {
			if _, known := at[name]; !known {
				faults = append(faults, fmt.Errorf("antagonist %d: found node %q, expected one of the plan", i+1, name))
			}
		}
		if a.BurstMin < 0 || a.PauseMin < 0 || a.BurstMax < a.BurstMin || a.PauseMax < a.PauseMin || a.BurstMax+a.PauseMax == 0 {
			faults = append(faults, fmt.Errorf("antagonist %d: found bursts of %v to %v and pauses of %v to %v, expected lengths of 0s or more, not all 0s",
				i+1, a.BurstMin, a.BurstMax, a.PauseMin, a.PauseMax))
		}
	}
	return errors.Join(faults...)
}

// checkSymmetry names the round trips that would depend on which end starts
// them: packets between two nodes have one delay each way.
func (p Plan) checkSymmetry() error {
	var faults []error
	for i, row := range p.RTT {
		for j := range row[:i] {
			if from, to := p.Nodes[j].Name, p.Nodes[i].Name; p.RTT[j][i] != p.RTT[i][j] {
				faults = append(faults, fmt.Errorf("round-trip times: found %v from %s to %s and %v from %s to %s, expected the same",
					p.RTT[j][i], from, to, p.RTT[i][j], to, from))
			}
		}
	}
	return errors.Join(faults...)
}

// StealsFrom says whether an antagonist takes cores of the node.
func (p Plan) StealsFrom(node string) bool {
	for _, a := range p.Antagonists {
		if a.StealCores > 0 && slices.Contains(a.Nodes, node) {
			return true
		}
	}
	return false
}
