package prom

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

// The same counters give the same numbers as on network namespaces
// (testbed/live's observe): a2 is read in every scrape, b1 as the case says.
func TestOursLikeTheLiveBackend(t *testing.T) {
	call := heart.Call{From: "a", To: "b"}
	cases := map[string]struct {
		cpu, requests []float64 // of b1, a scrape each; negative CPU = not read
		want          heart.Sample
		absent        bool
	}{
		"steady":           {cpu: []float64{1, 2, 4}, requests: []float64{10, 20, 40}, want: heart.Sample{CPUSeconds: 3, Requests: 30}},
		"idle is not none": {cpu: []float64{1, 1, 1}, requests: []float64{10, 10, 10}, want: heart.Sample{}},
		"never asked":      {cpu: []float64{1, 1, 2}, requests: []float64{-1, -1, -1}, want: heart.Sample{CPUSeconds: 1}},
		"restart":          {cpu: []float64{5, 6, 1}, requests: []float64{50, 60, 4}, want: heart.Sample{CPUSeconds: 2, Requests: 14}},
		// The requests alone do not tell of the restart.
		"restart then busier": {cpu: []float64{5, 6, 1}, requests: []float64{3, 3, 8}, want: heart.Sample{CPUSeconds: 2, Requests: 8}},
		"first request":       {cpu: []float64{1, 2, 3}, requests: []float64{-1, 7, 9}, want: heart.Sample{CPUSeconds: 2, Requests: 9}},
		"gap inside":          {cpu: []float64{1, -1, 4}, requests: []float64{10, 0, 40}, want: heart.Sample{CPUSeconds: 3, Requests: 30}},
		"last missing":        {cpu: []float64{1, 2, -1}, requests: []float64{10, 20, 0}, want: heart.Sample{CPUSeconds: 2, Requests: 20}},
		"first missing":       {cpu: []float64{-1, 2, 3}, requests: []float64{0, 20, 30}, want: heart.Sample{CPUSeconds: 2, Requests: 20}},
		"read once":           {cpu: []float64{-1, 2, -1}, requests: []float64{0, 20, 0}, absent: true},
	}
	p := prometheus(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pages []string
			for i := range c.cpu {
				page := ourPage("a2", float64(i), nil)
				if c.cpu[i] >= 0 {
					requests := map[string]float64{}
					if c.requests[i] >= 0 {
						requests["a1"] = c.requests[i]
					}
					page += ourPage("b1", c.cpu[i], requests)
				}
				pages = append(pages, page)
			}
			e := p.exporter(t)
			e.play(pages...)
			e.played(t)
			o := observe(t, p.config(t, ours, ours))
			got, here := o.Replicas["b1"]
			require.Equal(t, !c.absent, here)
			require.NotContains(t, o.Replicas, "b2", "not observed is absent, not zero")
			require.InDelta(t, 2, o.Replicas["a2"].CPUSeconds, 1e-9)
			require.InDelta(t, 2*every.Seconds(), o.Window.Seconds(), 0.1)
			if c.absent {
				require.NotContains(t, o.Calls, call)
				return
			}
			// Scrapes of one target are late by a few milliseconds, rarely more.
			require.InDelta(t, c.want.CPUSeconds, got.CPUSeconds, 0.2*c.want.CPUSeconds)
			require.InDelta(t, c.want.Requests, got.Requests, 0.2*c.want.Requests)
			require.InDelta(t, got.Requests, o.Calls[call], 1e-9)
			require.WithinDuration(t, time.Now(), o.End, 20*time.Second)
		})
	}
}

// More replicas than are asked for at once; the callee's number is its rate.
func TestManyReplicas(t *testing.T) {
	topology := pair()
	for i := range 2*batch + 5 {
		topology.Replicas = append(topology.Replicas, heart.Replica{Name: fmt.Sprintf("c.%d", i), Component: "c", Node: "n1"})
	}
	topology.Calls = append(topology.Calls, heart.Call{From: "a", To: "c"})
	p := prometheus(t)
	e := p.exporter(t)
	var pages []string
	for n := range 3 {
		page := ""
		for i, replica := range topology.Replicas {
			page += ourPage(replica.Name, float64(n), map[string]float64{"a1": float64(n * i), "a2": float64(n)})
		}
		pages = append(pages, page)
	}
	e.play(pages...)
	e.played(t)
	o, err := observer(t, p.config(t, ours, ours), topology).Observe(t.Context())
	require.NoError(t, err)
	require.Len(t, o.Replicas, len(topology.Replicas))
	total := 0.0
	for i, replica := range topology.Replicas {
		require.InDelta(t, 2*i+2, o.Replicas[replica.Name].Requests, 1e-9)
		if replica.Component == "c" {
			total += float64(2*i + 2)
		}
	}
	require.InDelta(t, total, o.Calls[heart.Call{From: "a", To: "c"}], 1e-6)
}

// CPU time that names its replica beside requests that do not is a fault of the
// measurement, and no idle replica.
func TestRequestsWithoutNames(t *testing.T) {
	p := prometheus(t)
	e, other := p.exporter(t), p.exporter(t)
	page := ourPage("b1", 1, nil) + "heartbed_requests_total{caller_replica=\"a1\",code=\"OK\"} 5\n"
	e.play(page, page, page)
	e.played(t)
	require.ErrorContains(t, refused(t, p.config(t, ours, ours)), "none of 1 series has the label replica that is to name the replica")

	page = ourPage("b2", 1, map[string]float64{"a1": 5})
	other.play(page, page, page)
	other.played(t)
	require.Contains(t, observe(t, p.config(t, ours, ours)).Warnings, "requests: left out 1 series without the label replica")
}
