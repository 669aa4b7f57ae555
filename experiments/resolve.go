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
	ws = append(ws, s.rttWarnings()...)
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

// rttWarnings names the pairs of nodes whose round-trip time is not simply
// what the scenario says.
func (s Scenario) rttWarnings() (ws []string) {
	var gaps, unequal []string
	for i, row := range s.RTTMs {
		for j := range row[:i] {
			from, to, there, back := s.Nodes[j].Name, s.Nodes[i].Name, s.RTTMs[j][i], s.RTTMs[i][j]
			switch {
			case there == nil && back == nil:
				gaps = append(gaps, from+"-"+to)
			case there != nil && back != nil && *there != *back:
				unequal = append(unequal, fmt.Sprintf("%s-%s %v ms and %s-%s %v ms", from, to, *there*s.RTTScale, to, from, *back*s.RTTScale))
			}
		}
	}
	if len(gaps) > 0 {
		ws = append(ws, fmt.Sprintf("rttMs: %s not measured, the largest measured value (%v ms) stands in", strings.Join(gaps, ", "), s.largestRTT()*s.RTTScale))
	}
	if len(unequal) > 0 {
		ws = append(ws, fmt.Sprintf("rttMs: found %s; a round trip takes as long from either end, so the mean is used", strings.Join(unequal, ", ")))
	}
	return ws
}

// largestRTT gives the largest measured value between two nodes, ms.
func (s Scenario) largestRTT() float64 {
	largest := 0.0
	for i, row := range s.RTTMs {
		for j, rtt := range row {
			if i != j && rtt != nil {
				largest = max(largest, *rtt)
			}
		}
	}
	return largest
}

// rtt gives the round-trip times in the order of the nodes, the same from
// either end: the mean of two values that differ, the only one where the other
// was not measured. A node that was not measured to itself has 0; any other
// pair that was not measured has the largest value that was.
func (s Scenario) rtt() [][]time.Duration {
	largest := s.largestRTT()
	table := make([][]time.Duration, len(s.RTTMs))
	for i, row := range s.RTTMs {
		for j, there := range row {
			back := s.RTTMs[j][i]
			ms := largest
			switch {
			case there != nil && back != nil:
				ms = (*there + *back) / 2
			case there != nil:
				ms = *there
			case back != nil:
				ms = *back
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
