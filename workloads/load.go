package workloads

// Load is how requests are offered. The rate itself (requests a second) is
// the trial's; Profile scales it over time.
type Load struct {
	Schedule string `yaml:"schedule"` // wrk2 or open
	// wrk2: Connections are dealt to Threads by integer division (10 over 4
	// gives 8), each has one request outstanding and its own pace; connection
	// i of a thread opens i x Stagger after the start.
	Threads     int      `yaml:"threads,omitempty"`
	Connections int      `yaml:"connections,omitempty"`
	Stagger     Duration `yaml:"stagger,omitempty"`
	// open: requests leave when due, whatever is outstanding.
	Arrivals string      `yaml:"arrivals,omitempty"` // even or poisson
	Profile  []RatePoint `yaml:"profile,omitempty"`  // open only; empty = constant
	Recorded *Recorded   `yaml:"recorded,omitempty"` // open only, instead of a profile
	Timeout  Duration    `yaml:"timeout,omitempty"`  // client timeout from the due time; 0 = none
}

// RatePoint sets the factor on the trial's rate from At until the next point.
type RatePoint struct {
	At     Duration `yaml:"at"`
	Factor float64  `yaml:"factor"`
}

// Recorded is a rate as it was measured: RPS[i] held during interval i. It is
// scaled so that the trial's rate is its mean.
type Recorded struct {
	Interval Duration  `yaml:"interval"`
	RPS      []float64 `yaml:"rps"`
}

// profile is the load's rate over time relative to the trial's.
func (l Load) profile() []RatePoint {
	if l.Recorded == nil {
		return l.Profile
	}
	mean := 0.0
	for _, r := range l.Recorded.RPS {
		mean += r / float64(len(l.Recorded.RPS))
	}
	points := make([]RatePoint, len(l.Recorded.RPS))
	for i, r := range l.Recorded.RPS {
		points[i] = RatePoint{At: Duration(i) * l.Recorded.Interval, Factor: r / mean}
	}
	return points
}
