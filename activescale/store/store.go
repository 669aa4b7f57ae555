// Package store keeps what pods last pushed, for as long as it is fresh. It
// refuses to answer for a pod whose sample has expired: silent is not zero.
// It imports nothing of ours.
package store

import (
	"context"
	"time"
)

// Pod names a pod.
type Pod struct{ Namespace, Name string }

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Sample is what one pod reported in one flush: all messages of it together.
type Sample struct {
	// Epoch numbers the pod's streams in the order in which receivers opened
	// them (Store.Open), Flush the flushes of one stream, from 1. A sample that
	// is older in this order never replaces a newer one. No clock takes part, so
	// that a stepped clock blinds nobody.
	Epoch, Flush uint64
	// At is when the sender took the sample, by its own clock; reported, never
	// judged by.
	At time.Time
	// Values are by metric, in the unit of the metric. A metric that the pod's
	// proxy has not used yet is absent; that there is a sample at all is the
	// pod's heartbeat.
	Values map[string]float64
}

// Store is where receivers put samples and the API finds them. All methods may
// be called at the same time.
type Store interface {
	// Open numbers a new stream: later calls, on any replica that shares the
	// store, give larger numbers.
	Open(ctx context.Context) (epoch uint64, err error)
	// Put keeps the sample for the time to live that the store was made with, in
	// one write. A sample older than the one that is kept is dropped without an
	// error.
	Put(ctx context.Context, pod Pod, s Sample) error
	// Get gives the fresh samples of the pods, in one round trip. A pod without
	// one is absent. An error says that the store cannot know, and then nothing
	// is to be concluded about any pod.
	Get(ctx context.Context, pods []Pod) (map[Pod]Sample, error)
	Close() error
}
