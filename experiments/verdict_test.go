package experiments

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// healthy is a measurement that nothing is wrong with: 1,000 answers of 10 ms
// at 100 a second.
func healthy() testbed.Measurement {
	m := testbed.Measurement{
		Latency: hdrhistogram.New(1, 3_600_000_000, 3), LatencyMeanUs: 10_000,
		Offered: 1000, Answered: 1000, OfferedRPS: 100, AchievedRPS: 100,
		OutstandingMean: 1, OccupiedMean: 1,
	}
	if err := m.Latency.RecordValues(10_000, 1000); err != nil {
		panic(err)
	}
	return m
}

// What must not become a number (giltene/wrk2#138: a rate that cannot be, a
// mean above P99; HdrHistogram/HdrHistogram_c#126: values out of range).
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(*testbed.Measurement)
		verdict Verdict
		reason  string
	}{
		"healthy":           {func(*testbed.Measurement) {}, Valid, ""},
		"just enough":       {func(m *testbed.Measurement) { m.AchievedRPS = 99 }, Valid, ""},
		"saturated":         {func(m *testbed.Measurement) { m.AchievedRPS = 98.9 }, Saturated, "98.9 of 100.0 requests a second were answered"},
		"nothing answered":  {func(m *testbed.Measurement) { m.Answered = 0 }, Invalid, "no request was answered"},
		"no histogram":      {func(m *testbed.Measurement) { m.Latency = nil }, Invalid, "no request was answered"},
		"over range":        {func(m *testbed.Measurement) { m.OverRange = 2 }, Invalid, "2 latencies are beyond"},
		"Little's law":      {func(m *testbed.Measurement) { m.OutstandingMean = 1.2 }, Invalid, "Little's law does not hold"},
		"Little, saturated": {func(m *testbed.Measurement) { m.OutstandingMean, m.AchievedRPS = 1.2, 50 }, Invalid, "1.200 requests in flight, but rate x response time is 1.000"},
		"Little, nearly":    {func(m *testbed.Measurement) { m.OccupiedMean = 1.019 }, Valid, ""},
		"cut off at once":   {func(m *testbed.Measurement) { m.CutOff, m.AchievedRPS = 24, 98 }, Valid, ""},
		"cut off too many":  {func(m *testbed.Measurement) { m.CutOff, m.AchievedRPS = 240, 90 }, Saturated, "90.0 of 100.0"},
		"wrong mean":        {func(m *testbed.Measurement) { m.LatencyMeanUs = 9_800 }, Invalid, "the mean of the histogram (10.004 ms) is not the exact mean (9.800 ms)"},
		"mean above P99":    {func(m *testbed.Measurement) { m.LatencyMeanUs = 10_100 }, Invalid, "not in order"},
		"late generator":    {func(m *testbed.Measurement) { m.Lateness = late(20_000) }, Invalid, "the load generator was late: P99 20.0 ms"},
		"late, saturated":   {func(m *testbed.Measurement) { m.Lateness, m.AchievedRPS = late(20_000), 50 }, Invalid, "the load generator was late"},
		"fault":             {func(m *testbed.Measurement) { m.Faults, m.AchievedRPS = []string{"shaping dropped 3 of 9 packets"}, 50 }, Invalid, "shaping dropped 3 of 9 packets"},
		"fault, no answer":  {func(m *testbed.Measurement) { m.Faults, m.Answered = []string{"shaping dropped 3 of 9 packets"}, 0 }, Invalid, "shaping dropped 3 of 9 packets"},
		"on time":           {func(m *testbed.Measurement) { m.Lateness = late(9_000) }, Valid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := healthy()
			c.spoil(&m)
			verdict, reasons := judge(m, 24)
			require.Equal(t, c.verdict, verdict, reasons)
			if c.reason == "" {
				require.Empty(t, reasons)
			} else {
				require.Contains(t, reasons[0], c.reason)
			}
		})
	}
}

// Requests that never left are failures, not a smaller load
// (grafana/k6#2837, envoyproxy/nighthawk#25).
func TestUnsentRequestsAreErrors(t *testing.T) {
	m := healthy()
	m.Answered, m.Unsent, m.TimedOut, m.Failed, m.CutOff = 900, 50, 20, 10, 20
	m.AchievedRPS = 90
	var r Result
	r.fill(Planned{}, m)
	require.EqualValues(t, 80, r.Errors)
	require.Equal(t, Requests{Offered: 1000, Answered: 900, Failed: 10, TimedOut: 20, CutOff: 20, Unsent: 50}, r.Requests)
	require.Equal(t, Saturated, r.Verdict)
	require.InDelta(t, 100, r.OfferedRPS, 0)
}

// A server that always takes 500 ms has no other percentile
// (fortio/fortio#1080: interpolation in a bucket gave a P50 of 299 ms), and
// P99 of 3,000 values is the 2,970th.
func TestPercentilesAreOfValues(t *testing.T) {
	m := testbed.Measurement{Latency: hdrhistogram.New(1, time.Hour.Microseconds(), 3), LatencyMeanUs: 500_000}
	require.NoError(t, m.Latency.RecordValues(500_000, 100))
	l := latency(m)
	for _, got := range []float64{l.P50, l.P90, l.P99, l.P999, l.Max} {
		require.InEpsilon(t, 500, got, 0.001)
	}
	m.Latency.Reset()
	for rank := int64(1); rank <= 3000; rank++ {
		require.NoError(t, m.Latency.RecordValue(1000*rank))
	}
	require.InEpsilon(t, 2970, latency(m).P99, 0.001)
}

// P99 of fewer than a hundred requests says no more than their maximum, and
// the result says so (kubernetes/perf-tests#527).
func TestFewRequestsAreSaid(t *testing.T) {
	for answered := int64(1); answered <= 150; answered++ {
		m := healthy()
		m.Latency.Reset()
		for ms := int64(1); ms <= answered; ms++ {
			require.NoError(t, m.Latency.RecordValue(1000*ms))
		}
		var r Result
		r.fill(Planned{}, m)
		if answered >= 100 {
			require.Empty(t, r.Warnings)
			continue
		}
		require.Equal(t, []string{fmt.Sprintf("%d requests were answered: P99 of fewer than 100 is one of the two highest latencies", answered)}, r.Warnings)
		require.GreaterOrEqual(t, r.LatencyMs.P99, 0.999*float64(answered-1))
	}
}

func late(us int64) *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, 3_600_000_000, 4)
	if err := h.RecordValues(us, 100); err != nil {
		panic(err)
	}
	return h
}

func TestCPUGaps(t *testing.T) {
	windows := []testbed.CPUWindow{
		{Start: 0, End: 30 * time.Second, Busy: map[string]float64{"gateway": 1, "a1": 0.5, "a2": 0.1, "b1": 0.9}},
		{Start: 30 * time.Second, End: 40 * time.Second, Busy: map[string]float64{"gateway": 0, "a1": 0.1, "a2": 0.1}},
		{Start: 40 * time.Second, End: 50 * time.Second, Busy: map[string]float64{"a1": 0.3, "a2": 0.1, "b1": 0.1, "b2": 0.8}},
	}
	usage := cpuUsage(windows)
	require.InDelta(t, (0.5*30+0.1*10+0.3*10)/50, usage["a1"].Mean, 1e-12, "weighted by the windows' lengths")
	require.Equal(t, 0.5, usage["a1"].Max)
	require.InDelta(t, (0.9*30+0.1*10)/40, usage["b1"].Mean, 1e-12, "a window without the replica does not count")
	components := map[string][]string{"a": {"a1", "a2"}, "b": {"b1", "b2"}, "c": {"c1"}}
	run, window := cpuGaps(components, usage, windows)
	require.InDelta(t, 28, *run, 1e-9, "a: 38 - 10 points; b: 80 - 70; never across components or with the gateway")
	require.InDelta(t, 40, *window, 1e-9, "median of 40 (a), 0 (a) and 70 (b)")
	run, window = cpuGaps(map[string][]string{"c": {"c1"}}, usage, windows)
	require.Nil(t, run)
	require.Nil(t, window)
}

func TestShares(t *testing.T) {
	a1, a2 := heart.Replica{Name: "a1", Component: "a", Node: "n1"}, heart.Replica{Name: "a2", Component: "a", Node: "n2"}
	b1, b2 := heart.Replica{Name: "b1", Component: "b", Node: "n1"}, heart.Replica{Name: "b2", Component: "b", Node: "n2"}
	client := heart.Replica{Name: "client"}
	table := heart.RoutingTable{
		Groups: []heart.Group{
			{Name: "a@n1", Component: "a", Node: "n1", Replicas: []string{"a1"}}, {Name: "a@n2", Component: "a", Node: "n2", Replicas: []string{"a2"}},
			{Name: "b@n1", Component: "b", Node: "n1", Replicas: []string{"b1"}}, {Name: "b@n2", Component: "b", Node: "n2", Replicas: []string{"b2"}},
		},
		Routes: []heart.Route{
			{From: "a@n1", To: "b", Balancer: heart.Weighted, Shares: []heart.Share{{To: "b@n1", Weight: 3}, {To: "b@n2", Weight: 1}}},
			{From: "a@n2", To: "b", Balancer: heart.Weighted, Shares: []heart.Share{{To: "b@n1", Weight: 0}, {To: "b@n2", Weight: 5}}},
		},
	}
	m := testbed.Measurement{
		Tables: []testbed.TimedTable{{At: 0}, {At: time.Minute, Table: table}},
		Seen: []testbed.SeenShare{
			{From: client, To: a1, Requests: 40}, {From: client, To: a2, Requests: 60},
			{From: a1, To: b1, Requests: 30}, {From: a1, To: b2, Requests: 10}, {From: a2, To: b2, Requests: 60},
		},
	}
	p := func(x float64) *float64 { return &x }
	require.Equal(t, []Share{
		{From: "a@n1", To: "b@n1", Intended: p(0.75), Seen: 0.75, Requests: 30},
		{From: "a@n1", To: "b@n2", Intended: p(0.25), Seen: 0.25, Requests: 10},
		{From: "a@n2", To: "b@n2", Intended: p(1), Seen: 1, Requests: 60},
		{From: "client", To: "a1", Seen: 0.4, Requests: 40},
		{From: "client", To: "a2", Seen: 0.6, Requests: 60},
	}, shares(m, time.Minute, 2*time.Minute))
	half := table
	half.Routes = slices.Clone(table.Routes)
	half.Routes[0].Shares = []heart.Share{{To: "b@n1", Weight: 1}, {To: "b@n2", Weight: 1}}
	m.Tables[0].Table = half
	changed := shares(m, 40*time.Second, 2*time.Minute)
	require.InDelta(t, 0.5*0.25+0.75*0.75, *changed[0].Intended, 1e-12, "for 20 of 80 s the first table was in force")
	require.InDelta(t, 0.75, *shares(m, 3*time.Minute, 3*time.Minute)[0].Intended, 1e-12)

	plan := testbed.Plan{
		App: workloads.Application{Entry: "a", Components: []workloads.Component{
			{Name: "a", Steps: []workloads.Step{{Call: []string{"b"}, Probability: 0.5}}}, {Name: "b", Steps: []workloads.Step{{CPUMs: 1}}},
		}},
		Replicas: []heart.Replica{a1, a2, b1, b2},
	}
	require.Equal(t, []ShareAt{
		{AtSeconds: 60, Component: "a", Node: "n1", Share: 0.5}, {AtSeconds: 60, Component: "a", Node: "n2", Share: 0.5},
		{AtSeconds: 60, Component: "b", Node: "n1", Share: 0.375}, {AtSeconds: 60, Component: "b", Node: "n2", Share: 0.625},
	}, sharesOverTime(plan, m.Tables[1:]))
}

func TestCounted(t *testing.T) {
	require.Equal(t, []string{"b (2 times)", "a"}, counted([]string{"b", "a", "b"}))
	require.Nil(t, counted(nil))
}
