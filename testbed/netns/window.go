package netns

import (
	"time"

	"heartbed/heart"
	"heartbed/testbed"
)

// counters is one scrape of all replicas. A replica that could not be read is
// absent.
type counters struct {
	at time.Time
	of map[string]reading // by replica
}

// reading is what one replica's exporter shows; all values only grow while
// its process lives.
type reading struct {
	cpuSeconds float64
	answered   map[string]float64 // requests answered well, by caller replica
	requests   map[string]float64 // all requests, by caller replica
}

// defaultScrape is the scrape interval where the plan names none.
const defaultScrape = 5 * time.Second

// windows are the lengths of a plan's control, with the defaults.
func windows(c testbed.Control) (scrape, window, lag time.Duration) {
	scrape, window, lag = c.Scrape.Std(), c.Window.Std(), c.Lag.Std()
	if scrape == 0 {
		scrape = defaultScrape
	}
	if window == 0 {
		window = c.Period.Std()
	}
	return scrape, window, lag
}

// choose gives the scrapes of the newest window that had reached the
// controller by now: those that end with the last one older than lag. Fewer
// than two are no window.
func choose(kept []counters, now time.Time, window, lag time.Duration) []counters {
	last := len(kept) - 1
	for last >= 0 && kept[last].at.After(now.Add(-lag)) {
		last--
	}
	first := last
	for first > 0 && !kept[first-1].at.Before(kept[last].at.Add(-window)) {
		first--
	}
	if first >= last {
		return nil
	}
	return kept[first : last+1]
}

// observe turns the scrapes of a window into an observation. A replica that
// was read fewer than twice is absent.
func observe(topology heart.Topology, window []counters) heart.Observation {
	o := heart.Observation{Topology: topology, Replicas: map[string]heart.Sample{}, Calls: map[heart.Call]float64{}}
	if len(window) < 2 {
		return o
	}
	o.End = window[len(window)-1].at.UTC()
	o.Window = window[len(window)-1].at.Sub(window[0].at)
	component := map[string]string{}
	for _, r := range topology.Replicas {
		component[r.Name] = r.Component
	}
	for _, r := range topology.Replicas {
		grown, ok := increase(r.Name, window)
		if !ok {
			continue
		}
		sample := heart.Sample{CPUSeconds: grown.cpuSeconds}
		for _, n := range grown.answered {
			sample.Requests += n
		}
		o.Replicas[r.Name] = sample
		for _, c := range topology.Calls {
			if c.To != r.Component {
				continue
			}
			o.Calls[c] += 0 // observed, even if there was none
			for _, caller := range topology.Replicas {
				if component[caller.Name] == c.From {
					o.Calls[c] += grown.answered[caller.Name]
				}
			}
		}
	}
	return o
}

// increase is what a replica's counters grew by in the scrapes, extrapolated
// to their whole time when it is missing from the first or the last. A counter
// that fell has started again from zero, as a new process does.
func increase(replica string, window []counters) (reading, bool) {
	grown := reading{answered: map[string]float64{}, requests: map[string]float64{}}
	var first, before *counters
	for i := range window {
		now, here := window[i].of[replica]
		if !here {
			continue
		}
		if before != nil {
			old := before.of[replica]
			// One counter tells for all: they are of one process.
			restarted := now.cpuSeconds < old.cpuSeconds
			if restarted {
				old = reading{}
			}
			grown.cpuSeconds += now.cpuSeconds - old.cpuSeconds
			grow(grown.answered, old.answered, now.answered)
			grow(grown.requests, old.requests, now.requests)
		} else {
			first = &window[i]
		}
		before = &window[i]
	}
	if first == before { // never or once
		return reading{}, false
	}
	whole, covered := window[len(window)-1].at.Sub(window[0].at), before.at.Sub(first.at)
	factor := float64(whole) / float64(covered)
	grown.cpuSeconds *= factor
	for name := range grown.answered {
		grown.answered[name] *= factor
	}
	for name := range grown.requests {
		grown.requests[name] *= factor
	}
	return grown, true
}

func grow(into, old, now map[string]float64) {
	for name, n := range now {
		into[name] += n - old[name]
	}
}

// seen counts the requests from replica to replica between two scrapes.
func seen(topology heart.Topology, before, after counters) []testbed.SeenShare {
	var out []testbed.SeenShare
	for _, from := range topology.Replicas {
		for _, to := range topology.Replicas {
			grown, ok := increase(to.Name, []counters{before, after})
			if n := int64(grown.requests[from.Name]); ok && n > 0 {
				out = append(out, testbed.SeenShare{From: from, To: to, Requests: n})
			}
		}
	}
	return out
}
