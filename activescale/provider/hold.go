package provider

import (
	"maps"
	"sync"
	"time"

	"heartbed/activescale/store"
)

// held keeps the last samples that queries have seen (keda issue 6887: a source
// that is down for a moment need not stop scaling). It invents nothing: a
// sample keeps its time and its age. Memory is bounded by the pods that queries
// have named within the last two times that samples are held.
type held struct {
	hold time.Duration

	mu    sync.Mutex // of what follows
	last  map[store.Pod]seen
	swept time.Time
}

// seen is a sample and when it was put.
type seen struct {
	store.Sample
	put time.Time
}

func newHeld(hold time.Duration) *held {
	return &held{hold: hold, last: map[store.Pod]seen{}, swept: time.Now()}
}

// see remembers fresh samples.
func (h *held) see(fresh map[store.Pod]store.Sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for pod, s := range fresh {
		// Another query may have seen a newer one meanwhile.
		if old, ok := h.last[pod]; !ok || now.Sub(old.put) >= h.hold || !s.Before(old.Sample) {
			h.last[pod] = seen{s, now.Add(-s.Age)}
		}
	}
	if now.Sub(h.swept) < h.hold {
		return
	}
	h.swept = now
	maps.DeleteFunc(h.last, func(_ store.Pod, s seen) bool { return now.Sub(s.put) >= h.hold })
}

// fill gives the fresh samples and, of the other pods that are asked for, what
// is held. It leaves its argument as it is.
func (h *held) fill(ask []store.Pod, fresh map[store.Pod]store.Sample) map[store.Pod]store.Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	all := make(map[store.Pod]store.Sample, len(ask))
	for _, pod := range ask {
		if s, ok := fresh[pod]; ok {
			all[pod] = s
			continue
		}
		if s, ok := h.last[pod]; ok && now.Sub(s.put) < h.hold {
			s.Age = now.Sub(s.put)
			all[pod] = s.Sample
		}
	}
	return all
}
