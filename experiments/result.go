// Package experiments turns a scenario into trials, runs them and keeps the
// results: one JSON object a trial, appended, never edited.
package experiments

import "heartbed/testbed"

// Verdict says whether a run's numbers may be used.
type Verdict string

const (
	Valid Verdict = "VALID"
	// Saturated: the system under test could not keep up although the
	// generator was on time. A result, but its P99 depends on the run's length.
	Saturated Verdict = "SATURATED"
	// Invalid: the numbers must not be used; the reasons say why.
	Invalid Verdict = "INVALID"
)

// Trial names one run. ID is the hash of all that determines its outcome.
type Trial struct {
	ID       string  `json:"id"`
	Scenario string  `json:"scenario"`
	App      string  `json:"app"`
	Backend  string  `json:"backend"`
	Policy   string  `json:"policy"` // name of the scenario's method, see Method
	RPS      float64 `json:"rps"`
	Rep      int     `json:"rep"`
	Seed     uint64  `json:"seed"`
	Scale    float64 `json:"scale,omitempty"` // by which CPU and load were divided; 0 = 1
}

// Result is one line of results.jsonl. A failed trial is a result too: Error
// says what went wrong and the measured fields are absent.
type Result struct {
	Trial       Trial               `json:"trial"`
	Verdict     Verdict             `json:"verdict"`
	Reasons     []string            `json:"reasons,omitempty"`
	Error       string              `json:"error,omitempty"`
	LatencyMs   *Latency            `json:"latencyMs,omitempty"`
	OfferedRPS  float64             `json:"offeredRps"`
	AchievedRPS float64             `json:"achievedRps"`
	Requests    Requests            `json:"requests"`
	Errors      int64               `json:"errors"` // failed + timed out + unsent
	CPU         map[string]CPUUsage `json:"cpu,omitempty"`
	CPUGapPp    *float64            `json:"cpuGapPp,omitempty"`
	// CPUGapWindowPp is the median over the control windows of the gap within
	// one window; CPUGapPp is the gap of the means of the run.
	CPUGapWindowPp *float64              `json:"cpuGapWindowPp,omitempty"`
	Shares         []Share               `json:"shares,omitempty"`
	SharesOverTime []ShareAt             `json:"sharesOverTime,omitempty"`
	Scaling        *Scaling              `json:"scaling,omitempty"` // nil = the replicas stayed as they were
	Throttling     map[string]Throttling `json:"throttling,omitempty"`
	StepSeconds    map[string]float64    `json:"stepSeconds,omitempty"` // median over the steps; not reproducible to the byte
	Steps          int                   `json:"steps"`
	StepErrors     []string              `json:"stepErrors,omitempty"`
	Warnings       []string              `json:"warnings,omitempty"`
	Setup          []testbed.SetupCheck  `json:"setup,omitempty"` // of a live backend, measured before the load
}

// Latency in ms, from the moment a request was due.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Requests by their fate.
type Requests struct {
	Offered  int64 `json:"offered"`
	Answered int64 `json:"answered"`
	Failed   int64 `json:"failed"`
	TimedOut int64 `json:"timedOut"`
	CutOff   int64 `json:"cutOff"` // outstanding when the run ended
	Unsent   int64 `json:"unsent"`
}

// CPUUsage of a replica as a fraction of what it may use.
type CPUUsage struct {
	Mean float64 `json:"mean"` // of the run
	Max  float64 `json:"max"`  // of its control windows
}

// Share is the intended (last table, absent = route not in it) and the seen
// share of the requests from a caller group to a callee group.
type Share struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	Intended *float64 `json:"intended"`
	Seen     float64  `json:"seen"`
	Requests int64    `json:"requests"`
}

// ShareAt is the part of a component's requests that a table sent to a node.
type ShareAt struct {
	AtSeconds float64 `json:"atSeconds"` // since the start of the warm-up
	Component string  `json:"component"`
	Node      string  `json:"node"`
	Share     float64 `json:"share"`
}

// Throttling is a replica's CFS accounting.
type Throttling struct {
	Periods          int64   `json:"periods"`
	Throttled        int64   `json:"throttled"`
	ThrottledSeconds float64 `json:"throttledSeconds"`
}
