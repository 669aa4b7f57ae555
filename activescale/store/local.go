package store

import (
	"context"
	"sync"
	"time"
)

// Local keeps samples in this process: enough for one replica, and nothing
// outside has to run. What a restart loses, the next flush of each pod brings
// back. Age is measured by this process's monotonic clock from the moment of
// Put, so that no stepped clock, here or at the sender, changes what is fresh.
//
// One mutex serves all: BenchmarkLocal shows that a pod's put and a query of a
// hundred pods hold it for far less than the 1,000 puts and 67 queries a second
// of a big installation could notice.
type Local struct {
	ttl time.Duration

	mu    sync.Mutex // of what follows
	epoch uint64
	kept  map[Pod]kept
	swept time.Time // when expired samples were last thrown away
}

// kept is a sample and when it came.
type kept struct {
	Sample
	put time.Time
}

var _ Store = (*Local)(nil)

// NewLocal returns an empty store whose samples are fresh for the ttl: four
// flushes, by convention. Its methods give an error only for a sample that
// cannot be kept.
func NewLocal(ttl time.Duration) *Local {
	return &Local{ttl: ttl, kept: map[Pod]kept{}, swept: time.Now()}
}

// Open counts: 1, 2, 3.
func (l *Local) Open(context.Context) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch++
	return l.epoch, nil
}

func (l *Local) Put(_ context.Context, pod Pod, s Sample) error {
	if err := s.check(); err != nil {
		return err
	}
	s.Age = 0
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.sweep(now)
	if old, ok := l.known(pod, now); !ok || !s.Before(old.Sample) {
		l.kept[pod] = kept{s, now}
	}
	return nil
}

// learn keeps samples that were read elsewhere and are as old as they say. Of
// the same flush the own one stays, whose age this clock has measured.
func (l *Local) learn(samples map[Pod]Sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.sweep(now)
	for pod, s := range samples {
		if old, ok := l.known(pod, now); !ok || old.Before(s) {
			l.kept[pod] = kept{s, now.Add(-s.Age)}
		}
	}
}

func (l *Local) Get(_ context.Context, pods []Pod) (map[Pod]Sample, error) {
	found := make(map[Pod]Sample, len(pods))
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, pod := range pods {
		if k, ok := l.known(pod, now); ok {
			k.Age = now.Sub(k.put)
			found[pod] = k.Sample
		}
	}
	return found, nil
}

// Close has nothing to do.
func (l *Local) Close() error { return nil }

func (l *Local) known(pod Pod, now time.Time) (kept, bool) {
	k, ok := l.kept[pod]
	return k, ok && l.fresh(k, now)
}

func (l *Local) fresh(k kept, now time.Time) bool { return now.Sub(k.put) < l.ttl }

// sweep throws expired samples away once in a ttl, so that the store holds no
// more pods than have pushed in the last two of them.
func (l *Local) sweep(now time.Time) {
	if now.Sub(l.swept) < l.ttl {
		return
	}
	l.swept = now
	for pod, k := range l.kept {
		if !l.fresh(k, now) {
			delete(l.kept, pod)
		}
	}
}
