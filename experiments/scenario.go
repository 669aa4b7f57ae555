package experiments

import (
	"heartbed/testbed"
	"heartbed/workloads"
)

// Scenario is everything an experiment is: the cluster, the applications, the
// methods compared and the sweep. It is read from YAML; docs/scenarios.md
// lists every field with its unit and default.
type Scenario struct {
	Name  string `yaml:"name"`
	Title string `yaml:"title"`
	// Extends names an embedded scenario or calibration whose fields hold
	// where this file is silent. Maps are merged, where null takes an entry out;
	// lists are replaced.
	Extends string `yaml:"extends,omitempty"`
	// Provenance says where the parameters come from.
	Provenance Provenance `yaml:"provenance,omitempty"`

	Nodes []testbed.Node `yaml:"nodes"`
	// RTTMs is a row a node, in the order of nodes, ms, round trip; null = not
	// measured: the largest measured value stands in, with a warning.
	RTTMs    [][]*float64 `yaml:"rttMs"`
	RTTScale float64      `yaml:"rttScale,omitempty"` // multiplies rttMs; 0 = 1

	Network     testbed.Network      `yaml:"network"`
	Entry       testbed.Entry        `yaml:"entry"`
	Load        workloads.Load       `yaml:"load"`
	Timing      testbed.Timing       `yaml:"timing"`
	Control     testbed.Control      `yaml:"control"`
	Antagonists []testbed.Antagonist `yaml:"antagonists,omitempty"`
	// Autoscale lets the replicas of a component follow the load; every method
	// then names a scaler.
	Autoscale *testbed.Autoscale `yaml:"autoscale,omitempty"`

	Apps    map[string]App    `yaml:"apps"`
	Methods map[string]Method `yaml:"methods,omitempty"` // beside the registered policies, which are methods by their own name
	Compare []string          `yaml:"compare"`           // methods run when --policy is not given; "all" = every registered policy
	// Baseline is the method that paired differences are taken against.
	Baseline    string `yaml:"baseline,omitempty"`
	Repetitions int    `yaml:"repetitions"`
	// Scale divides CPU capacity and offered load alike, so that a smaller
	// machine is as busy as the scenario's; 0 = 1. Rates keep their names.
	Scale      float64     `yaml:"scale,omitempty"`
	Seed       uint64      `yaml:"seed"`
	Thresholds []Threshold `yaml:"thresholds,omitempty"`
	// Short is what --short makes of the scenario, for backends that take real
	// time; nil = there is no short form.
	Short *ShortForm `yaml:"short,omitempty"`
	// Quick marks a scenario that --quick or --short cut down: fewer
	// repetitions and shorter runs than the published experiment.
	Quick bool `yaml:"quick,omitempty"`
}

// ShortForm replaces what makes a scenario last long.
type ShortForm struct {
	Compare     []string            `yaml:"compare,omitempty"` // empty = the scenario's
	Repetitions int                 `yaml:"repetitions"`
	Timing      testbed.Timing      `yaml:"timing"`
	Control     testbed.Control     `yaml:"control"`
	Apps        map[string]ShortApp `yaml:"apps"` // those that are run
}

// ShortApp replaces fields of an App.
type ShortApp struct {
	RPS   []float64 `yaml:"rps"`
	Scale float64   `yaml:"scale,omitempty"`
}

// Provenance of a parameter set: nothing in it was tuned for one policy.
type Provenance struct {
	FittedOn     []string `yaml:"fittedOn,omitempty"`     // published or measured values a parameter was fitted to
	ChosenByHand []string `yaml:"chosenByHand,omitempty"` // set after looking at results: implicit degrees of freedom
	Evidence     []string `yaml:"evidence,omitempty"`     // read in a public source
	Assumed      []string `yaml:"assumed,omitempty"`
}

// App is an application as it is run in a scenario.
type App struct {
	// Application is the name of a built-in application; Inline is one of the
	// user's own. Exactly one is given.
	Application string                 `yaml:"application,omitempty"`
	Inline      *workloads.Application `yaml:"inline,omitempty"`
	// CPUMs scales the application's CPU steps: the mean of a step of relative
	// cost 1, ms. 0 = the application's own times.
	CPUMs       float64                 `yaml:"cpuMs,omitempty"`
	ServiceTime *workloads.Distribution `yaml:"serviceTime,omitempty"` // replaces the application's
	Server      *workloads.Server       `yaml:"server,omitempty"`      // replaces the application's
	Replicas    map[string]int          `yaml:"replicas,omitempty"`    // replaces counts by component
	RPS         []float64               `yaml:"rps"`
	// Profile replaces the load's and Duration the measured time, for an app
	// that is a pattern of load.
	Profile  []workloads.RatePoint `yaml:"profile,omitempty"`
	Duration workloads.Duration    `yaml:"duration,omitempty"`
	Scale    float64               `yaml:"scale,omitempty"` // replaces the scenario's; 0 = it does not
	// Placement of methods that name none.
	Placement  string               `yaml:"placement"`
	Placements map[string]Placement `yaml:"placements"`
}

// Placement is a rule (larp, pack, spread) or a node for each replica.
type Placement struct {
	Rule     string              `yaml:"rule,omitempty"`
	CPU      float64             `yaml:"cpu,omitempty"`      // cores a replica requests, for the rules; default 0.5
	MemoryMB float64             `yaml:"memoryMB,omitempty"` // memory a replica requests; default 500
	Given    map[string][]string `yaml:"given,omitempty"`    // component -> node of each of its replicas in order
}

// Method is what is compared: a policy with parameters on a placement.
type Method struct {
	Policy    string            `yaml:"policy"`
	Params    map[string]string `yaml:"params,omitempty"`
	Placement string            `yaml:"placement,omitempty"` // name in the app's placements; empty = the app's own
	Title     string            `yaml:"title,omitempty"`
	// Connections replaces network.connections for a method that is a variant
	// of how connections are kept.
	Connections *int `yaml:"connections,omitempty"`
	// Scaler decides the replicas, in a scenario with autoscale.
	Scaler *testbed.Scaler `yaml:"scaler,omitempty"`
	// WaitForStep leaves new replicas without requests until the controller's
	// next period; else it steps as soon as they are ready.
	WaitForStep bool `yaml:"waitForStep,omitempty"`
	// Ramp is the time over which a new replica gets its whole part of the
	// requests; 0 = at once.
	Ramp workloads.Duration `yaml:"ramp,omitempty"`
}

// Threshold makes a run end with exit code 3 when it is missed.
type Threshold struct {
	App    string  `yaml:"app"`
	Method string  `yaml:"method"`
	RPS    float64 `yaml:"rps"`
	Metric string  `yaml:"metric"` // p99Ms, meanMs, errors or cpuGapPp
	Max    float64 `yaml:"max"`
}
