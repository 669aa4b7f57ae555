package sim

import (
	"time"

	"heartbed/heart"
	"heartbed/testbed"
)

// defaultScrape is the scrape interval where the plan names none.
const defaultScrape = 5 * time.Second

// counters is one scrape of every replica's counters.
type counters struct {
	at    int64
	cpu   []float64 // ns
	done  []int64
	calls []int64
}

// scraper keeps the scrapes that an observation can need, oldest first.
type scraper struct {
	every, window, lag time.Duration
	kept               []counters
}

func newScraper(c testbed.Control) scraper {
	s := scraper{every: c.Scrape.Std(), window: c.Window.Std(), lag: c.Lag.Std()}
	if s.every == 0 {
		s.every = defaultScrape
	}
	if s.window == 0 {
		s.window = c.Period.Std()
	}
	return s
}

// read scrapes all counters now and forgets what is too old.
func (s *scraper) read(w *world) {
	c := counters{at: w.now, calls: append([]int64(nil), w.router.calls...)}
	for _, st := range w.stations {
		st.settle(w.now)
		c.cpu, c.done = append(c.cpu, st.cpu), append(c.done, st.done)
	}
	s.kept = append(s.kept, c)
	oldest := w.now - int64(s.window+s.lag+2*s.every)
	for len(s.kept) > 2 && s.kept[0].at < oldest {
		s.kept = s.kept[1:]
	}
}

// observe is the newest window whose scrapes have reached the controller.
// Until there are two scrapes nothing is observed.
func (w *world) observe() heart.Observation {
	s := &w.scrapes
	o := heart.Observation{
		Topology: w.visible(), End: time.Unix(0, w.now).UTC(),
		Replicas: map[string]heart.Sample{}, Calls: map[heart.Call]float64{},
	}
	last := len(s.kept) - 1
	for last >= 0 && s.kept[last].at > w.now-int64(s.lag) {
		last--
	}
	if last < 1 {
		return o
	}
	first := last
	for first > 0 && s.kept[first-1].at >= s.kept[last].at-int64(s.window) {
		first--
	}
	if first == last {
		return o
	}
	a, b := s.kept[first], s.kept[last]
	o.End, o.Window = time.Unix(0, b.at).UTC(), time.Duration(b.at-a.at)
	for i, r := range w.replicas {
		if !w.present(int32(i)) || w.scaled != nil && w.scaled.pods[i] != nil && w.scaled.pods[i].changed > a.at {
			continue // was not there for the whole window
		}
		o.Replicas[r.Name] = heart.Sample{
			CPUSeconds: (b.cpu[i] - a.cpu[i]) / 1e9,
			Requests:   float64(b.done[i] - a.done[i]),
		}
	}
	for _, call := range w.topology.Calls {
		k := w.components[call.From].index*w.router.components + w.components[call.To].index
		o.Calls[call] = float64(b.calls[k] - a.calls[k])
	}
	return o
}

// usable is how many cores a replica may use: its threads or its quota.
func (s *station) usable() float64 {
	if s.quota == nil {
		return s.threads
	}
	return min(s.threads, s.quota.quota/float64(s.quota.period))
}

// endWindow closes a utilisation window of the measured time and opens the
// next, as long as a whole one fits; a run shorter than a window has one.
func (c *client) endWindow(w *world) {
	length := int64(w.scrapes.window)
	if length == 0 {
		length = int64(30 * time.Second)
	}
	if c.windowCPU != nil {
		busy := map[string]float64{}
		for i, s := range w.stations {
			s.settle(w.now)
			if w.replicas[i].Component != testbed.GatewayComponent && (w.scaled == nil || w.scaled.pods[i] == nil) {
				busy[w.replicas[i].Name] = (s.cpu - c.windowCPU[i]) / (float64(w.now-c.windowFrom) * s.usable())
			}
		}
		c.measured.Windows = append(c.measured.Windows, testbed.CPUWindow{
			Start: timeOf(c.windowFrom - c.from), End: timeOf(w.now - c.from), Busy: busy,
		})
	}
	c.windowFrom = w.now
	c.windowCPU = c.windowCPU[:0]
	for _, s := range w.stations {
		s.settle(w.now)
		c.windowCPU = append(c.windowCPU, s.cpu)
	}
	c.windowEnd = w.now + length
	if len(c.measured.Windows) == 0 {
		c.windowEnd = min(c.windowEnd, c.to)
	}
	if c.windowEnd <= c.to && c.windowEnd > w.now {
		w.events.push(c.windowEnd, window, 0, 0)
	}
}

// measurement sums the run up.
func (w *world) measurement() testbed.Measurement {
	c := &w.client
	m := c.measured
	seconds := float64(c.to-c.from) / 1e9
	m.OfferedRPS, m.AchievedRPS = float64(m.Offered)/seconds, float64(m.Answered)/seconds
	if m.Answered > 0 {
		m.LatencyMeanUs = c.latencies / float64(m.Answered) / 1e3
	}
	m.OutstandingMean = c.area / 1e9 / seconds
	m.OccupiedMean = c.occupied / 1e9 / seconds
	m.Seen, m.Tables = w.router.requests(), w.router.tables
	m.Throttled = map[string]testbed.Throttling{}
	for i, s := range w.stations {
		if s.quota != nil {
			m.Throttled[w.replicas[i].Name] = s.quota.stats
		}
	}
	m.Scaling = w.scaled.scaling(c.began)
	m.Events = w.counted
	return m
}
