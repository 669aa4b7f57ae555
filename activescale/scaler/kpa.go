package scaler

import (
	"math"
	"time"
)

// Knative's defaults (config-autoscaler).
const (
	kpaTick        = 2 * time.Second
	kpaScrape      = time.Second
	kpaStable      = 60 * time.Second
	kpaPanic       = 6 * time.Second // 10 percent of the stable window
	panicThreshold = 2.0             // of the ready pods
	maxUpRate      = 1000.0
	maxDownRate    = 2.0
)

// kpa is Knative's pod autoscaler (knative.dev/serving, pkg/autoscaler/scaling/
// autoscaler.go, v0.51): mean concurrency over a stable and a panic window, a
// decision every two seconds. Each pod's queue-proxy reports the mean of the
// last second; requests that wait at the activator count too.
type kpa struct {
	min, max      int
	target        float64
	tick, scrape  time.Duration
	before        map[int]float64 // ActiveSeconds at the last scrape, by pod
	queuedBefore  float64
	stable, panic buckets
	panicking     bool
	started       bool
	panicAt       time.Duration
	maxPanicPods  int
}

func newKPA(c Config) *kpa {
	return &kpa{
		min: c.Min, max: c.Max, target: c.Target,
		tick: phase(c.Seed, syncStream, kpaTick), scrape: phase(c.Seed, collectStream, kpaScrape), before: map[int]float64{},
		stable: newBuckets(kpaStable), panic: newBuckets(kpaPanic),
	}
}

// Next implements Scaler.
func (k *kpa) Next() time.Duration { return min(k.tick, k.scrape) }

// Act implements Scaler.
func (k *kpa) Act(v View) (int, bool) {
	if k.scrape <= v.Now {
		k.collect(v)
		k.scrape += kpaScrape
	}
	if k.tick > v.Now {
		return 0, false
	}
	k.tick += kpaTick
	ready := 0
	for _, p := range v.Pods {
		if p.Ready {
			ready++
		}
	}
	replicas, ok := k.decide(v.Now, ready, k.stable.mean(v.Now), k.panic.mean(v.Now))
	return min(max(replicas, k.min), k.max), ok
}

// collect adds up what the queue-proxies and the activator report.
func (k *kpa) collect(v View) {
	sum := (v.QueuedSeconds - k.queuedBefore) / kpaScrape.Seconds()
	k.queuedBefore = v.QueuedSeconds
	now := make(map[int]float64, len(v.Pods))
	for _, p := range v.Pods {
		if p.Ready {
			if before, seen := k.before[p.ID]; seen {
				sum += (p.ActiveSeconds - before) / kpaScrape.Seconds()
			}
		}
		now[p.ID] = p.ActiveSeconds
	}
	k.before = now
	k.stable.record(v.Now, sum)
	k.panic.record(v.Now, sum)
}

// decide gives the pods for the concurrencies of the two windows, before the
// limits of the revision.
func (k *kpa) decide(now time.Duration, readyPods int, stable, panicking float64) (int, bool) {
	if k.stable.empty(now) {
		return 0, false
	}
	if !k.started { // a scaler that finds more than one pod starts in panic
		k.started = true
		k.panicking, k.panicAt, k.maxPanicPods = readyPods > 1, now, readyPods
	}
	ready := math.Max(1, float64(readyPods))
	most, least := math.Ceil(maxUpRate*ready), math.Floor(ready/maxDownRate)
	clamp := func(pods float64) int { return int(math.Min(math.Max(pods, least), most)) }
	wantStable, wantPanic := math.Ceil(stable/k.target), math.Ceil(panicking/k.target)
	switch over := wantPanic/ready >= panicThreshold; {
	case over:
		k.panicking, k.panicAt = true, now
	case k.panicking && k.panicAt+kpaStable < now:
		k.panicking, k.maxPanicPods = false, 0
	}
	replicas := clamp(wantStable)
	if k.panicking { // never fewer than at any time of this panic
		k.maxPanicPods = max(k.maxPanicPods, replicas, clamp(wantPanic))
		replicas = k.maxPanicPods
	}
	return replicas, true
}

// buckets is a moving mean of values a second over a window.
type buckets struct {
	window        time.Duration
	values        map[time.Duration]float64 // by second
	first, newest time.Duration
}

func newBuckets(window time.Duration) buckets {
	return buckets{window: window, values: map[time.Duration]float64{}}
}

func (b *buckets) empty(now time.Duration) bool {
	return len(b.values) == 0 || now.Truncate(time.Second)-b.newest > b.window
}

// record adds a value to its second.
func (b *buckets) record(now time.Duration, value float64) {
	second := now.Truncate(time.Second)
	if len(b.values) == 0 || second-b.newest >= b.window {
		clear(b.values)
		b.first = second
	}
	b.newest = second
	b.values[second] += value
	for at := range b.values {
		if at <= second-b.window {
			delete(b.values, at)
		}
	}
}

// mean is the sum of the window's values over the seconds from the first to
// the newest that lie in it, rounded to millionths; seconds without a value
// count as zero.
func (b *buckets) mean(now time.Duration) float64 {
	now = max(now.Truncate(time.Second), b.newest)
	if len(b.values) == 0 || now-b.newest >= b.window {
		return 0
	}
	sum := 0.0
	for second := now - b.window + time.Second; second <= b.newest; second += time.Second {
		sum += b.values[second]
	}
	seconds := min((b.newest-b.first)/time.Second+1, (b.window-(now-b.newest))/time.Second)
	return math.Round(1e6*sum/float64(seconds)) / 1e6
}
