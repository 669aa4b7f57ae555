package loadgen

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// hiccupSleep is long enough that the meter does not disturb what it watches:
// waking up a thousand times a second took 40 % of a virtual machine of two
// cores, at the load generator's priority.
const hiccupSleep = 20 * time.Millisecond

// hiccups sleeps again and again until ctx ends and records by how much each
// sleep was too long, µs: what this machine adds to anything that waits
// (jHiccup's idea). A sleep that was far too long stands for those
// that should have ended meanwhile.
func hiccups(ctx context.Context) *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	for ctx.Err() == nil {
		asleep := time.Now()
		time.Sleep(hiccupSleep)
		over := time.Since(asleep) - hiccupSleep
		// The only error is a sleep of an hour.
		_ = h.RecordCorrectedValue(max(1, over.Microseconds()), hiccupSleep.Microseconds())
	}
	return h
}
