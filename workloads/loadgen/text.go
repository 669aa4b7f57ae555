package loadgen

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// WriteHistogram writes the latencies (µs) as a HdrHistogram log.
func (r Result) WriteHistogram(out io.Writer) error {
	w := hdrhistogram.NewHistogramLogWriter(out)
	err := errors.Join(w.OutputLogFormatVersion(), w.OutputComment("[latency in microseconds from the due time]"),
		w.OutputLegend(), w.OutputIntervalHistogramWithLogOptions(r.Latency, hdrhistogram.DefaultHistogramLogOptions()))
	if err != nil {
		return fmt.Errorf("write histogram: %w", err)
	}
	return nil
}

// WriteWrk2 writes the result as wrk2 prints it, so that what reads its logs
// reads ours; with the latency distribution if spectrum is set. Rates and
// counts of the closing lines are of the whole run, as they are there.
func (r Result) WriteWrk2(out io.Writer, c Config, spectrum bool) error {
	w := bufio.NewWriter(out)
	threads := max(1, c.Load.Threads)
	fmt.Fprintf(w, "Running %s test @ %s\n", wholeSpan(c.Duration), c.Target)
	fmt.Fprintf(w, "  %d threads and %d connections\n", threads, r.Connections)
	r.writeStats(w, threads)
	if spectrum {
		r.writeSpectrum(w)
	}
	seconds := math.Max(r.Duration.Seconds(), 1e-9)
	fmt.Fprintf(w, "  %d requests in %s, %s read\n", r.Requests, span(r.Duration), size(float64(r.Bytes)))
	if e := r.Errors; e.Connect+e.Read+e.Write+r.TimedOut > 0 {
		fmt.Fprintf(w, "  Socket errors: connect %d, read %d, write %d, timeout %d\n", e.Connect, e.Read, e.Write, r.TimedOut)
	}
	if r.Errors.Status > 0 {
		fmt.Fprintf(w, "  Non-2xx or 3xx responses: %d\n", r.Errors.Status)
	}
	fmt.Fprintf(w, "Requests/sec: %9.2f\n", float64(r.Requests)/seconds)
	fmt.Fprintf(w, "Transfer/sec: %10s\n", size(float64(r.Bytes)/seconds))
	return w.Flush()
}

// writeStats writes the table of latency and of the rate of each thread.
func (r Result) writeStats(w io.Writer, threads int) {
	h := r.Latency
	mean, deviation := r.mean(), h.StdDev()
	within := 0.0
	for _, bar := range h.Distribution() {
		if middle := float64(bar.From+bar.To) / 2; math.Abs(middle-mean) <= deviation {
			within += float64(bar.Count)
		}
	}
	fmt.Fprintf(w, "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n")
	fmt.Fprintf(w, "    Latency%11s%10s%9s%8.2f%%\n", us(mean), us(deviation), us(float64(h.Max())),
		100*within/math.Max(1, float64(h.TotalCount())))
	rates := r.PerSecond
	if n := int(r.Duration / time.Second); len(rates) > n { // without the second that is not whole, and the drain
		rates = rates[:n]
	}
	mean, deviation, highest, near := moments(rates, threads)
	fmt.Fprintf(w, "    Req/Sec%9.2f  %8.2f  %7.2f  %7.2f%%\n", mean, deviation, highest, near)
}

// moments of the rates of one thread; near is the share within a deviation, %.
func moments(counts []int64, threads int) (mean, deviation, highest, near float64) {
	n := math.Max(1, float64(len(counts)))
	for _, c := range counts {
		v := float64(c) / float64(threads)
		mean += v / n
		highest = math.Max(highest, v)
	}
	for _, c := range counts {
		deviation += math.Pow(float64(c)/float64(threads)-mean, 2) / n
	}
	deviation = math.Sqrt(deviation)
	for _, c := range counts {
		if math.Abs(float64(c)/float64(threads)-mean) <= deviation {
			near += 100 / n
		}
	}
	return mean, deviation, highest, near
}

// writeSpectrum writes the quantiles and every step of the distribution.
func (r Result) writeSpectrum(w io.Writer) {
	h := r.Latency
	fmt.Fprintf(w, "  Latency Distribution (HdrHistogram - Recorded Latency)\n")
	for _, p := range []float64{50, 75, 90, 99, 99.9, 99.99, 99.999, 100} {
		fmt.Fprintf(w, "%7.3f%% %9s\n", p, us(float64(h.ValueAtQuantile(p))))
	}
	fmt.Fprintf(w, "\n  Detailed Percentile spectrum:\n       Value   Percentile   TotalCount 1/(1-Percentile)\n\n")
	const ticks = 5 // a halving of the distance to 100 %
	for _, step := range h.CumulativeDistributionWithTicks(ticks) {
		quantile := step.Quantile / 100
		inverse := "inf"
		if quantile < 1 {
			inverse = fmt.Sprintf("%.2f", 1/(1-quantile))
		}
		fmt.Fprintf(w, "%12.3f %12.6f %12d %12s\n", float64(step.ValueAt)/1000, quantile, step.Count, inverse)
	}
	fmt.Fprintf(w, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", r.mean()/1000, h.StdDev()/1000)
	fmt.Fprintf(w, "#[Max     = %12.3f, Total count    = %12d]\n", float64(h.Max())/1000, h.TotalCount())
	fmt.Fprintf(w, "#[Buckets = %12d, SubBuckets     = %12d]\n", buckets(h), 2048)
	fmt.Fprintf(w, "----------------------------------------------------------\n")
}

// buckets is how often the range of the histogram doubles beyond the 2048
// steps that three digits need.
func buckets(h *hdrhistogram.Histogram) int {
	n := 1
	for top := int64(2048); top <= h.HighestTrackableValue(); top *= 2 {
		n++
	}
	return n
}

// us writes microseconds; wrk2 says nan where nothing was measured.
func us(v float64) string {
	if math.IsNaN(v) {
		return "nanus"
	}
	return span(time.Duration(v * 1e3))
}

// mean is that of the latencies in µs, NaN if there are none.
func (r Result) mean() float64 {
	if r.Answered == 0 {
		return math.NaN()
	}
	return r.LatencyMeanUs
}

// span writes a time with two decimals in the unit of its size.
func span(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.2fus", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.2fms", float64(d)/1e6)
	case d < time.Minute:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%.2fm", d.Minutes())
	}
	return fmt.Sprintf("%.2fh", d.Hours())
}

// wholeSpan writes a time without decimals where it has none.
func wholeSpan(d time.Duration) string {
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= unit.d && d%unit.d == 0 {
			return fmt.Sprintf("%d%s", d/unit.d, unit.name)
		}
	}
	return span(d)
}

// size writes bytes with two decimals in the binary unit of their size.
func size(bytes float64) string {
	for _, unit := range []struct {
		bytes float64
		name  string
	}{{1 << 40, "TB"}, {1 << 30, "GB"}, {1 << 20, "MB"}, {1 << 10, "KB"}} {
		if bytes >= unit.bytes {
			return fmt.Sprintf("%.2f%s", bytes/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%.2fB", bytes)
}
