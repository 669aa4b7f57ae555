// Package testbed says what a place is that can run a trial: Plan is the
// blueprint, Backend stands it up, Session offers the load and owns time.
// The places themselves live below: sim, netns, kind and cluster.
package testbed

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"heartbed/heart"
)

// Backend is a place that can run a plan.
type Backend interface {
	// Check says whether this machine can run the backend at all. An error
	// that wraps errors.ErrUnsupported means something is missing (the text
	// says what mends it); any other error means it could not be told.
	Check(ctx context.Context) error
	// Start stands the plan up. The caller closes the session.
	Start(ctx context.Context, p Plan) (Session, error)
}

// Session is a plan that stands. It is the controller's Observer and Router.
type Session interface {
	heart.Observer
	heart.Router
	// Run offers the plan's load in the session's own time and calls step
	// every Control.Period from the start of the warm-up on. A step's error is
	// counted and the run goes on, as on a cluster; only ctx ends it early,
	// and half a run is no result.
	Run(ctx context.Context, step func(context.Context) error) (Measurement, error)
	Close() error
}

// Measurement is what one run measured, from the end of the warm-up on.
type Measurement struct {
	// Latency in µs from the moment a request was due, 1 µs to 1 h; only
	// answered requests that were due in the measured time are in it.
	Latency       *hdrhistogram.Histogram
	LatencyMeanUs float64 // exact mean of the same requests
	OverRange     int64   // latencies beyond the histogram's range, counted in Answered too

	// Requests due in the measured time by their fate; Offered is the sum of
	// the others. CutOff were outstanding when the run ended, Unsent were due
	// but had not left (their connection was busy).
	Offered, Answered, Failed, TimedOut, CutOff, Unsent int64
	OfferedRPS, AchievedRPS                             float64

	// For Little's law over the measured time, exact at its edges: the time
	// average of the number of outstanding requests, and the sum of the times
	// that each request was outstanding in it, divided by it. They differ only
	// if requests were lost or counted twice.
	OutstandingMean, OccupiedMean float64
	Lateness                      *hdrhistogram.Histogram // µs from due to sent of an idle generator; nil = cannot be late

	Windows    []CPUWindow           // one a control window of the measured time
	Seen       []SeenShare           // requests that really went from replica to replica
	Tables     []TimedTable          // every table applied, in order
	Throttled  map[string]Throttling // by replica; absent = no quota
	Scaling    []ScalePoint          // every change of the scaled component's replicas, in order
	StepErrors []string
	Events     int64 // simulator only: events processed
	Warnings   []string
	// Faults say how the testbed was not what the plan says during the run:
	// the figures must not be used.
	Faults []string
	Setup  []SetupCheck // what was measured before the load; a live backend's
}

// SetupCheck is a property of the testbed that was measured before the load,
// beside what the plan says.
type SetupCheck struct {
	What     string  `json:"what"` // such as "round trip n1 to n2"
	Unit     string  `json:"unit"` // ms or cores
	Spec     float64 `json:"spec"`
	Measured float64 `json:"measured"`
}

// CPUWindow is the utilisation of each replica in one control window, as a
// fraction of what the replica may use (its threads or its quota).
type CPUWindow struct {
	Start, End time.Duration // since the start of the measured time
	Busy       map[string]float64
}

// SeenShare counts the requests from the replicas of From to those of To.
type SeenShare struct {
	From, To heart.Replica
	Requests int64
}

// TimedTable is a routing table and when it came into force, counted from the
// start of the warm-up.
type TimedTable struct {
	At    time.Duration
	Table heart.RoutingTable
}

// Throttling is the CFS bandwidth accounting of a replica, as in cpu.stat.
type Throttling struct {
	Periods, Throttled int64
	ThrottledTime      time.Duration
}
