package heart

import "time"

// Sample is what was measured of one replica in one window. Counts are
// fractional because counters read at scrapes are extrapolated to the window.
type Sample struct {
	CPUSeconds float64
	Requests   float64
}

// Observation is what was measured in one window. A replica or call that is
// absent from a map was not observed, which is not the same as zero.
type Observation struct {
	Topology Topology
	End      time.Time     // end of the window
	Window   time.Duration // length of the window
	Replicas map[string]Sample
	Calls    map[Call]float64 // requests from component to component
	Warnings []string
}
