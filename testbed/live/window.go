package live

import (
	"time"

	"heartbed/heart"
	"heartbed/testbed"
)

// Counters is one scrape of all replicas. A replica that could not be read is
// absent.
type Counters struct {
	At time.Time
	Of map[string]Reading // by replica
}

// Reading is what one replica's exporter shows; all values only grow while
// its process lives.
type Reading struct {
	CPUSeconds float64
	Answered   map[string]float64 // requests answered well, by caller replica
	Requests   map[string]float64 // all requests, by caller replica
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
func choose(kept []Counters, now time.Time, window, lag time.Duration) []Counters {
	last := len(kept) - 1
	for last >= 0 && kept[last].At.After(now.Add(-lag)) {
		last--
	}
	first := last
	for first > 0 && !kept[first-1].At.Before(kept[last].At.Add(-window)) {
		first--
	}
	if first >= last {
		return nil
	}
	return kept[first : last+1]
}

// observe turns the scrapes of a window into an observation. A replica that
// was read fewer than twice is absent.
func observe(topology heart.Topology, window []Counters) heart.Observation {
	o := heart.Observation{Topology: topology, Replicas: map[string]heart.Sample{}, Calls: map[heart.Call]float64{}}
	if len(window) < 2 {
		return o
	}
	o.End = window[len(window)-1].At.UTC()
	o.Window = window[len(window)-1].At.Sub(window[0].At)
	component := map[string]string{}
	for _, r := range topology.Replicas {
		component[r.Name] = r.Component
	}
	for _, r := range topology.Replicas {
		grown, ok := increase(r.Name, window)
		if !ok {
			continue
		}
		sample := heart.Sample{CPUSeconds: grown.CPUSeconds}
		for _, n := range grown.Answered {
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
					o.Calls[c] += grown.Answered[caller.Name]
				}
			}
		}
	}
	return o
}

// increase is what a replica's counters grew by in the scrapes, extrapolated
// to their whole time when it is missing from the first or the last. A counter
// that fell has started again from zero, as a new process does.
func increase(replica string, window []Counters) (Reading, bool) {
	grown := Reading{Answered: map[string]float64{}, Requests: map[string]float64{}}
	var first, before *Counters
	for i := range window {
		now, here := window[i].Of[replica]
		if !here {
			continue
		}
		if before != nil {
			old := before.Of[replica]
			// One counter tells for all: they are of one process.
			restarted := now.CPUSeconds < old.CPUSeconds
			if restarted {
				old = Reading{}
			}
			grown.CPUSeconds += now.CPUSeconds - old.CPUSeconds
			grow(grown.Answered, old.Answered, now.Answered)
			grow(grown.Requests, old.Requests, now.Requests)
		} else {
			first = &window[i]
		}
		before = &window[i]
	}
	if first == before { // never or once
		return Reading{}, false
	}
	whole, covered := window[len(window)-1].At.Sub(window[0].At), before.At.Sub(first.At)
	factor := float64(whole) / float64(covered)
	grown.CPUSeconds *= factor
	for name := range grown.Answered {
		grown.Answered[name] *= factor
	}
	for name := range grown.Requests {
		grown.Requests[name] *= factor
	}
	return grown, true
}

func grow(into, old, now map[string]float64) {
	for name, n := range now {
		into[name] += n - old[name]
	}
}

// seen counts the requests from replica to replica between two scrapes.
func seen(topology heart.Topology, before, after Counters) []testbed.SeenShare {
	var out []testbed.SeenShare
	for _, from := range topology.Replicas {
		for _, to := range topology.Replicas {
			grown, ok := increase(to.Name, []Counters{before, after})
			if n := int64(grown.Requests[from.Name]); ok && n > 0 {
				out = append(out, testbed.SeenShare{From: from, To: to, Requests: n})
			}
		}
	}
	return out
}
