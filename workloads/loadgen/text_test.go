package loadgen

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a run of 100 s with latencies of 1, 2, ... 1000 ms and some errors.
func sample() (Config, Result) {
	c := Config{
		Target: "http://gateway/a", RPS: 10.5, Duration: 100 * time.Second, Drop: 5 * time.Second,
		Load: workloads.Load{Schedule: "wrk2", Threads: 4, Connections: 10},
	}
	r := newRecorder(c)
	r.opened = 8
	for i := range 1000 {
		due := time.Duration(i) * 100 * time.Millisecond
		r.offer(due)
		r.left(0)
		r.bytes += 123
		r.end(request{due: due, sent: due + 1}, due+time.Duration(i+1)*time.Millisecond, fateAnswered, nil)
	}
	for i, f := range []fate{fateConnect, fateRead, fateRead, fateWrite, fateStatus, fateTimedOut} {
		due := 50*time.Second + time.Duration(i)
		r.offer(due)
		r.left(0)
		r.end(request{due: due, sent: due}, due+time.Second, f, os.ErrClosed)
	}
	return c, r.result(c.Duration)
}

func TestWrk2TextGolden(t *testing.T) {
	t.Parallel()
	c, r := sample()
	var whole, brief, empty bytes.Buffer
	require.NoError(t, r.WriteWrk2(&whole, c, true))
	golden := filepath.Join("testdata", "wrk2.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, whole.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), whole.String())

	require.NoError(t, r.WriteWrk2(&brief, c, false))
	require.NotContains(t, brief.String(), "Percentile")
	nothing := newRecorder(c)
	require.NoError(t, nothing.result(c.Duration).WriteWrk2(&empty, c, true))
	require.Contains(t, empty.String(), "nan", "nothing measured is not zero")
}

func TestSampleAddsUp(t *testing.T) {
	t.Parallel()
	_, r := sample()
	balanced(t, r)
	require.Equal(t, int64(956), r.Offered)
	require.Equal(t, int64(950), r.Answered)
	require.Equal(t, Errors{Connect: 1, Read: 2, Write: 1, Status: 1}, r.Errors)
	require.Equal(t, int64(1), r.TimedOut)
	require.InDelta(t, 525_500, r.LatencyMeanUs, 1e-6, "51 ms to 1 s")
	require.Len(t, r.Faults, 5)
}

func TestHistogramLog(t *testing.T) {
	t.Parallel()
	_, r := sample()
	var log bytes.Buffer
	require.NoError(t, r.WriteHistogram(&log))
	read, err := hdrhistogram.NewHistogramLogReader(&log).NextIntervalHistogram()
	require.NoError(t, err)
	require.True(t, read.Equals(r.Latency))
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		850 * time.Microsecond: "850.00us", 1250 * time.Microsecond: "1.25ms", 2010 * time.Millisecond: "2.01s",
		3 * time.Minute: "3.00m", 90 * time.Minute: "1.50h", 0: "0.00us",
	} {
		require.Equal(t, want, span(d))
	}
	require.Equal(t, "3m", wholeSpan(3*time.Minute))
	require.Equal(t, "90s", wholeSpan(90*time.Second))
	require.Equal(t, "1.50us", wholeSpan(1500*time.Nanosecond))
	require.Equal(t, "1.50KB", size(1536))
	require.Equal(t, "12.00B", size(12))
}

// The recorder weighs only what lies in the measured time.
func TestRecorderOverlap(t *testing.T) {
	t.Parallel()
	r := newRecorder(Config{Duration: 3 * time.Second, Drop: time.Second})
	for _, q := range []struct{ sent, end time.Duration }{{1, 600}, {700, 2 * time.Second}, {2 * time.Second, 10 * time.Second}} {
		r.left(q.sent)
		r.end(request{due: q.sent, sent: q.sent}, q.end, fateAnswered, nil)
	}
	require.Equal(t, 2*time.Second, r.occupied)
	require.InDelta(t, 2e9, r.area, 1)
	require.Equal(t, int64(1), r.measured[fateAnswered], "one is due in it")
	r.end(request{due: 2 * time.Second, sent: 2 * time.Second}, 2*time.Second+2*time.Hour, fateAnswered, nil)
	require.Equal(t, int64(1), r.overRange)
}
