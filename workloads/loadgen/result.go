package loadgen

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured. The first group has the names and meanings
// of testbed.Measurement.
type Result struct {
	// Latency in µs from the due time, 1 µs to 1 h, of answered requests that
	// were due in the measured time.
	Latency       *hdrhistogram.Histogram
	LatencyMeanUs float64 // exact mean of the same requests
	OverRange     int64   // latencies beyond the histogram, counted in Answered too

	// Requests due in the measured time by their fate; Offered is the sum of
	// the others. CutOff were outstanding when the run ended, Unsent were due
	// but had not left.
	Offered, Answered, Failed, TimedOut, CutOff, Unsent int64
	OfferedRPS, AchievedRPS                             float64

	// For Little's law: the time average of outstanding requests, the rate at
	// which they were answered and their mean time from leaving to answer.
	OutstandingMean, OccupiedMean float64

	// Lateness in µs is the generator's own delay: from due to the moment at
	// which it turns to the request, whether a connection is free then or not.
	// With the wrk2 schedule it counts from the moment its pace allows.
	Lateness *hdrhistogram.Histogram

	// Hiccups in µs is by how much sleeps beside the run took longer than asked
	// for, from its start to its end; nil = not asked for.
	Hiccups *hdrhistogram.Histogram

	Errors   Errors   // of Failed
	Faults   []string // the first error of each kind
	Duration time.Duration
	Measured time.Duration // the part of it that counts
	Requests int64         // answered in all, before and after the measured time too
	Bytes    int64         // read in all
	// Connections that were open at once at most.
	Connections int
	PerSecond   []int64 // requests answered in each second of the run
}

// Errors are failed requests by kind; they add up to Result.Failed.
type Errors struct {
	Connect int64 // no connection to be had
	Write   int64 // the request could not be sent
	Read    int64 // the connection broke or the answer was no HTTP
	Status  int64 // answered, but neither 2xx nor 3xx; a gRPC code other than OK
}

// Progress is the state of a run while it goes on, over its whole time.
type Progress struct {
	Elapsed, Duration time.Duration
	// Answered and the quantiles are of the measured time, the others of all.
	Sent, Answered, Failed, TimedOut int64
	Outstanding, Waiting             int64
	RPS                              float64 // answered since the last report
	P50, P99                         time.Duration
}
