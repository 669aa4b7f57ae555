// Package store keeps what pods last pushed, for as long as it is fresh. It
// refuses to answer for a pod whose sample has expired: silent is not zero.
// It imports nothing of ours.
//
// Local serves one replica, Redis several, and Shared joins the two, so that a
// Redis that is down blinds only queries for pods which push elsewhere.
package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Pod names a pod.
type Pod struct{ Namespace, Name string }

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Sample is what one pod reported in one flush: all messages of it together.
type Sample struct {
	// Epoch numbers the pod's streams in the order in which receivers opened
	// them (Store.Open), Flush the flushes of one stream, from 1. A sample that
	// is older in this order never replaces a newer one. No sender's clock takes
	// part, so that a stepped clock blinds nobody.
	Epoch, Flush uint64
	// At is when the sender took the sample, by its own clock, kept to the
	// millisecond; reported, never judged by.
	At time.Time
	// Age is how long ago the receiver put the sample, by the clock of the
	// store. Get sets it, Put ignores it.
	Age time.Duration
	// Values are by metric, in the unit of the metric. A metric that the pod's
	// proxy has not used yet is absent; that there is a sample at all is the
	// pod's heartbeat. The map belongs to the store after Put and to all readers
	// after Get: nobody may write to it.
	Values map[string]float64
}

// Before says whether s is older than t.
func (s Sample) Before(t Sample) bool {
	return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.Flush < t.Flush
}

// Limits of a sample, far above what a pod reports.
const (
	maxValues = 255
	maxName   = 255     // bytes
	maxEpoch  = 1 << 52 // where a number in a script of Redis still counts by one
)

// check says what keeps a sample from being stored.
func (s Sample) check() error {
	if s.Epoch == 0 || s.Flush == 0 {
		return errors.New("put sample: epoch and flush count from 1")
	}
	if s.Epoch > maxEpoch {
		return fmt.Errorf("put sample: epoch %d was never opened", s.Epoch)
	}
	if len(s.Values) > maxValues {
		return fmt.Errorf("put sample: %d values, more than %d", len(s.Values), maxValues)
	}
	for name, v := range s.Values {
		if len(name) > maxName {
			return fmt.Errorf("put sample: name of a metric has %d bytes, more than %d", len(name), maxName)
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("put sample: %s is %v", name, v)
		}
	}
	return nil
}

// Store is where receivers put samples and the API finds them. All methods may
// be called at the same time.
type Store interface {
	// Open numbers a new stream: later calls, on any replica that shares the
	// store, give larger numbers.
	Open(ctx context.Context) (epoch uint64, err error)
	// Put keeps the sample for the time to live that the store was made with, in
	// one write. A sample older than the one that is kept is dropped without an
	// error, one of the same flush replaces it. A value that is no finite number
	// is an error.
	Put(ctx context.Context, pod Pod, s Sample) error
	// Get gives the fresh samples of the pods, in one round trip. A pod without
	// one is absent. An error says that the store cannot know, and then nothing
	// is to be concluded about any pod.
	Get(ctx context.Context, pods []Pod) (map[Pod]Sample, error)
	Close() error
}
