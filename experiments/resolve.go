package experiments

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"heartbed/workloads"
)

// Warnings lists what is allowed but must be known when the results are read.
func (s Scenario) Warnings() []string {
	var ws []string
	if s.Quick {
		ws = append(ws, "quick run: fewer repetitions and shorter runs than the scenario asks for")
	}
	if largest, gaps := s.largestRTT(); len(gaps) > 0 {
		ws = append(ws, fmt.Sprintf("rttMs: %s not measured, the largest measured value (%v ms) stands in", strings.Join(gaps, ", "), largest*s.RTTScale))
	}
	c := s.Control
	if c.Period == 0 {
		return ws
	}
	if c.Window < 4*c.Scrape {
		ws = append(ws, fmt.Sprintf("control.window: %v is less than four scrapes (%v): one late scrape changes a rate much", c.Window, 4*c.Scrape))
	}
	if c.Period < c.Window {
		ws = append(ws, fmt.Sprintf("control.period: %v is shorter than the window (%v): consecutive observations overlap", c.Period, c.Window))
	}
	return ws
}

// largestRTT gives the largest measured value between two nodes, ms, and
// names the pairs that have none.
func (s Scenario) largestRTT() (largest float64, unmeasured []string) {
	for i, row := range s.RTTMs {
		for j, rtt := range row {
			switch {
			case i == j:
			case rtt == nil:
				unmeasured = append(unmeasured, s.Nodes[i].Name+"-"+s.Nodes[j].Name)
			default:
				largest = max(largest, *rtt)
			}
		}
	}
	return largest, unmeasured
}

// rtt gives the round-trip times in the order of the nodes. A node that was
// not measured to itself has 0; any other pair that was not measured has the
// largest value that was.
func (s Scenario) rtt() [][]time.Duration {
	largest, _ := s.largestRTT()
	table := make([][]time.Duration, len(s.RTTMs))
	for i, row := range s.RTTMs {
		for j, rtt := range row {
			ms := largest
			switch {
			case rtt != nil:
				ms = *rtt
			case i == j:
				ms = 0
			}
			table[i] = append(table[i], time.Duration(ms*s.RTTScale*float64(time.Millisecond)))
		}
	}
	return table
}

// application gives the app's application with what the scenario replaces in
// it. The result is not yet validated.
func (a App) application() (workloads.Application, error) {
	var app workloads.Application
	if a.Inline != nil {
		app = *a.Inline
	} else {
		var err error
		if app, err = workloads.Named(a.Application); err != nil {
			return app, err
		}
	}
	app.Components = slices.Clone(app.Components)
	for i := range app.Components {
		c := &app.Components[i]
		if n, replaced := a.Replicas[c.Name]; replaced {
			c.Replicas = n
		}
		if a.CPUMs == 0 {
			continue
		}
		c.Steps = slices.Clone(c.Steps)
		for j := range c.Steps {
			c.Steps[j].CPUMs *= a.CPUMs
		}
	}
	if a.ServiceTime != nil {
		app.ServiceTime = *a.ServiceTime
	}
	if a.Server != nil {
		app.Server = *a.Server
	}
	return app, nil
}
