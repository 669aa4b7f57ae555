package analysis

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// wrk2Run is one run of wrk2 as it printed it. A field that was not printed,
// or not as a number, is NaN (percentiles and mean) or -1 (counts).
type wrk2Run struct {
	line        int // where the run starts, from 1
	duration    time.Duration
	meanMs      float64
	maxMs       float64
	percentiles map[float64]float64 // percent -> ms, as printed
	spectrum    []spectrumRow
	total       int64 // latencies recorded, after calibration
	requests    int64
	achieved    float64 // requests per second
	socket      int64   // sum of socket errors
	timeouts    int64   // of them
	failed      int64   // answers other than 2xx and 3xx
	sent        bool    // the closing lines are there: the run ended
}

// spectrumRow is a line of the detailed percentile spectrum.
type spectrumRow struct {
	valueMs, quantile float64
	count             int64
}

var (
	wrk2Start      = regexp.MustCompile(`Running (\S+) test @ `)
	wrk2Percent    = regexp.MustCompile(`^\s*([\d.]+)%\s+(\S+)\s*$`)
	wrk2Row        = regexp.MustCompile(`^\s*([\d.]+)\s+([01]\.\d+)\s+(\d+)\s+(inf|[\d.]+)\s*$`)
	wrk2Mean       = regexp.MustCompile(`^#\[Mean\s*=\s*([^,\s]+)`)
	wrk2Max        = regexp.MustCompile(`^#\[Max\s*=\s*([^,\s]+),\s*Total count\s*=\s*(\d+)`)
	wrk2Latency    = regexp.MustCompile(`^\s*Latency\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+\s*$`)
	wrk2Requests   = regexp.MustCompile(`^\s*(\d+) requests in `)
	wrk2Rate       = regexp.MustCompile(`^Requests/sec:\s*(\S+)`)
	wrk2Socket     = regexp.MustCompile(`^\s*Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrk2NotOK      = regexp.MustCompile(`^\s*Non-2xx or 3xx responses: (\d+)`)
	wrk2Uncorrects = "Uncorrected Latency" // the section that leaves out the time a request was late
)

// parseWrk2 reads all runs in a wrk2 log. An input without any run gives none
// and no error; the caller says what that means.
func parseWrk2(r io.Reader) ([]wrk2Run, error) {
	p := wrk2Parser{}
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadString('\n')
		p.line(number, strings.TrimRight(line, "\r\n"))
		if err == io.EOF {
			return p.runs, nil
		}
		if err != nil {
			return p.runs, err
		}
	}
}

type wrk2Parser struct {
	runs []wrk2Run
	skip bool // inside the uncorrected section
}

func (p *wrk2Parser) line(number int, text string) {
	// A run that was cut off may leave half a line before the next one starts.
	if at := wrk2Start.FindStringSubmatchIndex(text); at != nil {
		p.field(text[:at[0]])
		p.start(number, text[at[2]:at[3]])
		return
	}
	p.field(text)
}

func (p *wrk2Parser) start(number int, duration string) {
	nan := math.NaN()
	run := wrk2Run{line: number, meanMs: nan, maxMs: nan, achieved: nan, total: -1, requests: -1, percentiles: map[float64]float64{}}
	if ms, ok := parseSpan(duration); ok {
		run.duration = time.Duration(ms * float64(time.Millisecond))
	}
	p.runs = append(p.runs, run)
	p.skip = false
}

func (p *wrk2Parser) field(text string) {
	if len(p.runs) == 0 {
		return
	}
	run := &p.runs[len(p.runs)-1]
	if strings.Contains(text, wrk2Uncorrects) {
		p.skip = true
		return
	}
	if m := wrk2Requests.FindStringSubmatch(text); m != nil {
		p.skip = false // the closing lines follow
		run.requests = parseCount(m[1])
		return
	}
	if p.skip || run.latencyField(text) {
		return
	}
	run.closingField(text)
}

// latencyField reads a line of the latency sections and says whether it was one.
func (run *wrk2Run) latencyField(text string) bool {
	if m := wrk2Percent.FindStringSubmatch(text); m != nil {
		percent, err := strconv.ParseFloat(m[1], 64)
		if ms, ok := parseSpan(m[2]); ok && err == nil {
			run.percentiles[percent] = ms
		}
		return true
	}
	if m := wrk2Row.FindStringSubmatch(text); m != nil {
		value, errValue := strconv.ParseFloat(m[1], 64)
		quantile, errQuantile := strconv.ParseFloat(m[2], 64)
		if errValue == nil && errQuantile == nil {
			run.spectrum = append(run.spectrum, spectrumRow{value, quantile, parseCount(m[3])})
		}
		return true
	}
	if m := wrk2Mean.FindStringSubmatch(text); m != nil {
		run.meanMs = parseNumber(m[1])
		return true
	}
	if m := wrk2Max.FindStringSubmatch(text); m != nil {
		run.maxMs, run.total = parseNumber(m[1]), parseCount(m[2])
		return true
	}
	if m := wrk2Latency.FindStringSubmatch(text); m != nil {
		// Rounded; the spectrum's closing lines say the same more exactly.
		if ms, ok := parseSpan(m[1]); ok && math.IsNaN(run.meanMs) {
			run.meanMs = ms
		}
		if ms, ok := parseSpan(m[3]); ok && math.IsNaN(run.maxMs) {
			run.maxMs = ms
		}
		return true
	}
	return false
}

func (run *wrk2Run) closingField(text string) {
	if m := wrk2Rate.FindStringSubmatch(text); m != nil {
		run.achieved, run.sent = parseNumber(m[1]), true
	}
	if m := wrk2Socket.FindStringSubmatch(text); m != nil {
		run.timeouts = parseCount(m[4])
		run.socket = parseCount(m[1]) + parseCount(m[2]) + parseCount(m[3]) + run.timeouts
	}
	if m := wrk2NotOK.FindStringSubmatch(text); m != nil {
		run.failed = parseCount(m[1])
	}
}

// percentile is the printed percentile where wrk2 printed that very one, else
// the value at the first line of the spectrum at or above it; NaN = neither.
func (run wrk2Run) percentile(percent float64) float64 {
	if ms, ok := run.percentiles[percent]; ok {
		return ms
	}
	for _, row := range run.spectrum {
		if row.quantile >= percent/100 {
			return row.valueMs
		}
	}
	return math.NaN()
}

// faults are the reasons for which a run's numbers must not be used.
func (run wrk2Run) faults() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if !run.sent {
		fault("the log is truncated: found no line Requests/sec")
	}
	p50, p99 := run.percentile(50), run.percentile(99)
	switch {
	case math.IsNaN(run.meanMs):
		fault("the mean latency is not a number: nothing was recorded")
	case math.IsNaN(p50) || math.IsNaN(p99):
		fault("found no latency distribution, expected the output of wrk2 --latency")
	case run.meanMs < 0 || p50 < 0 || p99 < p50 || run.percentile(90) < p50 || run.percentile(99.9) < p99:
		fault("the percentiles do not rise: P50 %s, P99 %s ms", formatMs(p50), formatMs(p99))
	case !math.IsNaN(run.maxMs) && run.meanMs > run.maxMs*1.01:
		fault("the mean of %s ms is above the highest latency of %s ms", formatMs(run.meanMs), formatMs(run.maxMs))
	case run.meanMs > p99*1.01: // printed digits; the simulator's runs are held to the same
		fault("the mean of %s ms is above the P99 of %s ms", formatMs(run.meanMs), formatMs(p99))
	}
	if run.sent && math.IsNaN(run.achieved) {
		fault("the achieved rate is not a number")
	}
	return faults
}

// parseSpan reads a time as wrk2 prints it, in ms: 850.00us, 1.25ms, 2.01s,
// 3m, 1.00h.
func parseSpan(text string) (float64, bool) {
	units := []struct {
		suffix string
		ms     float64
	}{{"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		if v := parseNumber(digits); !math.IsNaN(v) {
			return v * u.ms, true
		}
	}
	return 0, false
}

// parseNumber gives NaN for what is no finite number.
func parseNumber(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(v, 0) {
		return math.NaN()
	}
	return v
}

// parseCount gives -1 for what does not fit.
func parseCount(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return v
}
