package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

// The fleet answers through every component, is seen to use CPU and memory,
// and is gone after stop.
func TestFleet(t *testing.T) {
	dir := t.TempDir()
	program, err := buildWorkload(t.Context(), dir)
	require.NoError(t, err)
	f, err := startFleet(t.Context(), dir, program)
	defer f.stop()
	require.NoError(t, err)
	require.Len(t, f.processes, 26)
	require.Len(t, f.callers, 4, "a to d call on, e does not")
	used, took, err := f.during(func() error {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for range 20 {
			answer, err := client.Get(f.url)
			if err != nil {
				return err
			}
			answer.Body.Close()
			require.Equal(t, http.StatusOK, answer.StatusCode)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, used.callers, 20*4*10*time.Microsecond, "less would be a wonder")
	require.Positive(t, used.gateway)
	require.Greater(t, used.all, used.callers+used.gateway)
	require.Less(t, used.all, took*64)
	var out bytes.Buffer
	require.NoError(t, f.memory(t.Context(), &out, "idle"))
	require.Regexp(t, `^idle(\t[0-9.]+){5}\t\n$`, out.String())
}

func TestCallsOnly(t *testing.T) {
	app := workloads.Application{Components: []workloads.Component{
		{Name: "a", Steps: []workloads.Step{{CPUMs: 5}, {Call: []string{"b"}}, {CPUMs: 7}}},
		{Name: "b", Steps: []workloads.Step{{CPUMs: 5}}},
	}}
	light := callsOnly(app)
	require.Equal(t, []workloads.Step{{Call: []string{"b"}}}, light.Components[0].Steps)
	require.Equal(t, []workloads.Step{{CPUMs: 0.001}}, light.Components[1].Steps)
	require.Equal(t, 5.0, app.Components[0].Steps[0].CPUMs, "the original is as it was")
}

// The CPU clock of a process by its id is what the process sees itself.
func TestCPUOfAProcess(t *testing.T) {
	for until := time.Now().Add(50 * time.Millisecond); time.Now().Before(until); {
		_, _ = io.WriteString(io.Discard, "x")
	}
	before, err := processCPU()
	require.NoError(t, err)
	used, err := cpuOf(os.Getpid())
	require.NoError(t, err)
	after, err := processCPU()
	require.NoError(t, err)
	const tick = 10 * time.Millisecond // getrusage may count in ticks
	require.GreaterOrEqual(t, used, before-tick)
	require.LessOrEqual(t, used, after+tick)
	_, err = cpuOf(1 << 23) // beyond what a pid can be
	require.ErrorContains(t, err, "CPU clock of process 8388608")
}

func TestResidentOf(t *testing.T) {
	rss, pss, err := residentOf("f", "55-7f ---p [rollup]\nRss:   2048 kB\nPss:  512 kB\nPss_Anon:  112 kB\n")
	require.NoError(t, err)
	require.Equal(t, []float64{2, 0.5}, []float64{rss, pss})
	_, _, err = residentOf("f", "55-7f ---p [rollup]\nRss:   2048 kB\n")
	require.ErrorContains(t, err, "f: read Pss:")
}

// Costs are without what idle processes use, per hop and per request.
func TestCallCostsPrint(t *testing.T) {
	us := time.Microsecond
	c := callCosts{
		idle: cpuUse{all: 2400 * us},
		low:  []callCost{{hop: 1600 * us, gateway: 900 * us}, {hop: 1500 * us, gateway: 800 * us}, {hop: 1400 * us, gateway: 700 * us}},
		high: []callCost{{hop: 300 * us, gateway: 200 * us}},
	}
	var out strings.Builder
	require.NoError(t, c.print(&out, 3))
	require.Regexp(t, `10 requests/s +1500 +1400 +1600 +800\n`, out.String())
	require.Regexp(t, `closed loop, 8 outstanding +300 +300 +300 +200\n`, out.String())
	require.Contains(t, out.String(), "idle: 2.4ms of CPU a second")
}
