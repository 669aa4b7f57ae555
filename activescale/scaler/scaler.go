// Package scaler holds models of autoscalers for the simulator: the horizontal
// pod autoscaler (HPA) of Kubernetes over CPU from metrics-server, over pushed
// active requests (activescale) and over Prometheus (KEDA), and Knative's KPA.
//
// A model reads no clock and does no I/O: whoever owns time asks it when it
// acts next and shows it the pods then. Phases of all periods are random and
// seeded; models of the same seed share the phase of the HPA's sync.
package scaler

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Pod is what can be seen of one pod of the scaled component at one moment.
// Times count from the start of the session and may be negative: a pod can be
// older than the session.
type Pod struct {
	ID            int // never used again
	Created       time.Duration
	Pending       bool          // no container has been started yet
	Running       bool          // its container runs; false while it waits to be started again
	Started       time.Duration // of the running container
	Ready         bool
	Changed       time.Duration // when Ready last changed
	CPUSeconds    float64       // used since Started
	Active        int           // requests in flight
	ActiveSeconds float64       // integral of Active since Created
}

// View is all that a scaler may see at one moment.
type View struct {
	Now      time.Duration
	Replicas int // that were asked for last
	Pods     []Pod
	// Queued is how many requests an activator holds back, QueuedSeconds its
	// integral since the start of the session.
	Queued        int
	QueuedSeconds float64
}

// Scaler decides how many replicas there shall be.
type Scaler interface {
	// Next is when it acts next; it never lies before the view of the last Act.
	Next() time.Duration
	// Act does what is due at v.Now: collect metrics, decide. False = nothing
	// was decided, so that the replicas stay.
	Act(v View) (replicas int, decided bool)
}

// Config is a scaler with all its parameters. Fields of other kinds are
// ignored.
type Config struct {
	Kind     string // one of Kinds
	Min, Max int    // replicas
	Seed     uint64 // of the phases

	// Of the HPA, whatever its metric.
	Sync      time.Duration // between two decisions; 0 = 15 s
	Tolerance float64       // of the usage ratio around 1; 0 = 0.1
	Behavior  *Behavior     // nil = Kubernetes' rules for an HPA without one

	// Target is requests in flight a pod for all kinds but cpu, where it is
	// percent of the CPU request.
	Target float64

	// RequestCores is the CPU request of a pod, for cpu.
	RequestCores float64
	// Every is the period at which a metric is collected: metrics-server's
	// resolution (cpu), Envoy's flush (activescale), Prometheus' scrape (keda).
	Every time.Duration
	// Poll is how often KEDA asks Prometheus when it caches; 0 = at each sync
	// of the HPA.
	Poll time.Duration
	// Limit is the container concurrency of Knative: requests in flight that a
	// pod takes; others wait at the activator. 0 = none.
	Limit int
}

// Kinds lists the models in alphabetical order.
func Kinds() []string { return []string{KindActivescale, KindCPU, KindKEDA, KindKPA} }

// The models.
const (
	KindActivescale = "activescale" // HPA over active requests that each pod pushes
	KindCPU         = "cpu"         // HPA over CPU utilisation from metrics-server
	KindKEDA        = "keda"        // HPA over the sum of active requests in Prometheus
	KindKPA         = "kpa"         // Knative's pod autoscaler
)

// New makes the scaler.
func New(c Config) (Scaler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Kind == KindKPA {
		return newKPA(c), nil
	}
	return newHPA(c), nil
}

// Validate reports every fault of the configuration, joined; each names its
// field, what was found and what is expected.
func (c Config) Validate() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !slices.Contains(Kinds(), c.Kind) {
		add("kind: found %q, expected one of %s", c.Kind, strings.Join(Kinds(), ", "))
	}
	if c.Min < 1 || c.Max < c.Min {
		add("min: found %d to %d replicas, expected at least 1 and no more than there is room for", c.Min, c.Max)
	}
	if !(c.Target > 0) {
		add("target: found %v, expected a number above 0", c.Target)
	}
	if c.Kind == KindCPU && !(c.RequestCores > 0) {
		add("requestCores: found %v, expected a number above 0", c.RequestCores)
	}
	if c.Kind != KindKPA && c.Every <= 0 {
		add("every: found %v, expected more than 0s", c.Every)
	}
	if c.Sync < 0 || c.Poll < 0 || c.Tolerance < 0 || c.Limit < 0 {
		add("sync, poll, tolerance, limit: found %v, %v, %v and %d, expected 0 or more", c.Sync, c.Poll, c.Tolerance, c.Limit)
	}
	if c.Behavior != nil {
		for _, r := range []struct {
			name  string
			rules Rules
		}{{"up", c.Behavior.Up}, {"down", c.Behavior.Down}} {
			if err := r.rules.validate(); err != nil {
				add("behavior.%s: %w", r.name, err)
			}
		}
	}
	return errors.Join(faults...)
}

// Streams of random phases.
const (
	syncStream uint64 = iota + 1
	collectStream
	pollStream
	podStream // and from here on one a pod
)

// phase is a random moment within a period, the same for the same seed and
// stream.
func phase(seed, stream uint64, period time.Duration) time.Duration {
	return time.Duration(rand.New(rand.NewPCG(seed, stream)).Int64N(int64(period)))
}

// timetable is when something is done with each pod: once a period, at a phase
// of the pod's own.
type timetable struct {
	every time.Duration
	seed  uint64
	next  map[int]time.Duration // by pod
}

func newTimetable(seed uint64, every time.Duration) timetable {
	return timetable{every: every, seed: seed, next: map[int]time.Duration{}}
}

// due lists the pods whose turn it is and forgets those that are gone.
func (t *timetable) due(v View) []Pod {
	var now []Pod
	here := make(map[int]bool, len(v.Pods))
	for _, p := range v.Pods {
		here[p.ID] = true
		at, known := t.next[p.ID]
		if !known {
			at = v.Now - v.Now%t.every + phase(t.seed, podStream+uint64(p.ID), t.every)
			if at < v.Now {
				at += t.every
			}
		}
		if at <= v.Now {
			now = append(now, p)
			at += t.every
		}
		t.next[p.ID] = at
	}
	for id := range t.next {
		if !here[id] {
			delete(t.next, id)
		}
	}
	return now
}

// soonest is the next turn of any pod. Before the first view, and where there
// is no pod, it is the start of the next period, for new pods to be seen.
func (t *timetable) soonest(now time.Duration) time.Duration {
	soonest := now + t.every
	for _, at := range t.next {
		soonest = min(soonest, at)
	}
	return soonest
}
