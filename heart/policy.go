package heart

import "time"

// Policy decides a routing table from one observation.
//
// Allocate is deterministic: the same sequence of observations gives the same
// sequence of decisions, byte for byte. It must not change the observation
// and must not keep it. A policy may remember what it saw (HEART keeps an
// EWMA a group); after an error that memory is as it was before the call.
// Allocate is not called concurrently on one policy.
type Policy interface {
	Allocate(o Observation, m *Meter) (Decision, error)
}

// PolicyFunc makes a function a stateless Policy.
type PolicyFunc func(o Observation, m *Meter) (Decision, error)

// Allocate calls f.
func (f PolicyFunc) Allocate(o Observation, m *Meter) (Decision, error) { return f(o, m) }

// Decision is a routing table and the trace of the stages that led to it.
type Decision struct {
	Table    RoutingTable
	Stages   Stages
	Warnings []string
}

// Stages is the trace of HEART's two stages; other policies leave it empty.
type Stages struct {
	ATPM []ComponentTrace `json:"atpm,omitempty"`
	NTAM []PairTrace      `json:"ntam,omitempty"`
}

// ComponentTrace shows how ATPM came to the shares of one component.
type ComponentTrace struct {
	Component string       `json:"component"`
	Groups    []GroupTrace `json:"groups"`
}

// GroupTrace is one group of a component: the replicas of one node.
type GroupTrace struct {
	Node     string   `json:"node"`
	Replicas int      `json:"replicas"`
	Load     *float64 `json:"load"`  // CPU seconds a request in this window; null = not observed
	Alpha    *float64 `json:"alpha"` // weight of the newest load; null = the EWMA was not updated
	EWMA     float64  `json:"ewma"`  // CPU seconds a request; 0 = no estimate
	Share    float64  `json:"share"` // of the component's requests; a component's shares add up to 1
}

// PairTrace shows what NTAM did with the links of one call.
type PairTrace struct {
	From     string     `json:"from"`
	To       string     `json:"to"`
	High     []LinkName `json:"high"`     // the slow cluster of k-means, slowest first
	Removed  []LinkName `json:"removed"`  // those of them that carry nothing
	Restored []LinkName `json:"restored"` // those that were removed and had to come back
	Feasible bool       `json:"feasible"` // the flow over the unfiltered links carries all demand
	CostMs   float64    `json:"costMs"`   // mean round-trip time a request, ms
}

// LinkName names a link by its two groups.
type LinkName struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Meter takes the time of a policy's stages. A nil Meter, or one without Now,
// measures nothing, so that the core reads no clock unless it is handed one.
type Meter struct {
	Now     func() time.Time
	Seconds map[string]float64 // stage -> seconds
	last    time.Time
}

// Start begins the first stage.
func (m *Meter) Start() {
	if m == nil || m.Now == nil {
		return
	}
	m.last = m.Now()
	if m.Seconds == nil {
		m.Seconds = map[string]float64{}
	}
}

// Lap books the time since Start or the last Lap under the stage's name.
func (m *Meter) Lap(stage string) {
	if m == nil || m.Now == nil {
		return
	}
	now := m.Now()
	m.Seconds[stage] += now.Sub(m.last).Seconds()
	m.last = now
}
