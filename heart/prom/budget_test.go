package prom

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed/testbedtest"
)

// A controller of 400 replicas with a step every 30 s may take 1 % of a core and
// 50 MB in all. Most of the memory is what the libraries of a cluster take.
const (
	budgetCPU    = 300 * time.Millisecond // an observation
	budgetMemory = 15_000_000             // bytes
)

// chain is a topology of five components with as many replicas each, on one
// node.
func chain(each int) heart.Topology {
	topology := heart.Topology{Nodes: []heart.Node{{Name: "n1"}}}
	for c := range 5 {
		component := fmt.Sprintf("c%d", c)
		if c > 0 {
			topology.Calls = append(topology.Calls, heart.Call{From: fmt.Sprintf("c%d", c-1), To: component})
		}
		for r := range each {
			topology.Replicas = append(topology.Replicas, heart.Replica{Name: fmt.Sprintf("%s-%d", component, r), Component: component, Node: "n1"})
		}
	}
	return topology
}

// chainPage is what our exporters show when every replica of a chain is called
// by every replica of the component before.
func chainPage(each int) string {
	var page strings.Builder
	for i, replica := range chain(each).Replicas {
		callers := map[string]float64{}
		for caller := range each {
			callers[fmt.Sprintf("c%d-%d", i/each-1, caller)] = float64(1000 * caller)
		}
		if i < each {
			callers = map[string]float64{"gateway": float64(i)}
		}
		page.WriteString(ourPage(replica.Name, float64(i)/7, callers))
	}
	return page.String()
}

// scaled is a window as full as one of 30 s with a scrape every 5 s, in less
// time.
const (
	scaledScrape = time.Second
	scaledWindow = 6 * scaledScrape
)

// large is a Prometheus that has scraped a chain of 400 replicas, 25,680
// counters, and one of 5.
func large(t testing.TB) (*server, error) {
	exporters := []*exporter{newExporter(), newExporter()}
	for i, each := range []int{80, 1} {
		t.Cleanup(exporters[i].Close)
		exporters[i].test = fmt.Sprint(5 * each)
		exporters[i].hold(chainPage(each))
	}
	s, err := launch(t.TempDir(), exporters, scaledScrape, "")
	if err != nil {
		return nil, err
	}
	t.Cleanup(s.kill)
	for _, e := range exporters {
		e.wait(t, 8)
		e.hold("") // no more
	}
	return s, nil
}

// ofChain observes the chain with that many replicas.
func ofChain(address string, replicas int) (*Observer, error) {
	of := Query{Preset: ours, Match: map[string]string{"case": fmt.Sprint(replicas)}}
	c := Config{Address: address, Window: model.Duration(scaledWindow), MaxAge: model.Duration(time.Hour), CPU: of, Requests: of}
	return New(c, constant(chain(replicas/5)))
}

// usage is what a process took that did nothing but observe.
type usage struct {
	CPU    time.Duration
	Memory int64 // peak, bytes
}

// job is what such a process does.
type job struct {
	Address         string
	Replicas, Times int
}

// asJob names the variable that makes a process of this program do a job.
const asJob = "HEARTBED_PROM_JOB"

// run starts a process for the job and tells what it took.
func (j job) run(t testing.TB) usage {
	text, err := json.Marshal(j)
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), asJob+"="+string(text))
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	var u usage
	require.NoError(t, json.Unmarshal(out, &u.Memory), "%s", out)
	u.CPU = c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	return u
}

// do does a job and prints the memory that it took.
func do(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	o, err := ofChain(j.Address, j.Replicas)
	if err != nil {
		return err
	}
	for range j.Times {
		got, err := o.Observe(context.Background())
		if err != nil {
			return err
		}
		if len(got.Replicas) != j.Replicas {
			return fmt.Errorf("found %d replicas, expected %d: %s", len(got.Replicas), j.Replicas, got.Warnings)
		}
	}
	peak, err := peakMemory()
	if err == nil {
		_, err = fmt.Println(peak)
	}
	return err
}

// cost is what an observation of 400 replicas takes more than one of 5.
func (s *server) cost(t testing.TB) usage {
	const times = 10
	none, all := job{s.URL, 5, times}.run(t), job{s.URL, 400, times}.run(t)
	t.Logf("5 replicas: %v, 400: %v", none, all)
	return usage{CPU: (all.CPU - none.CPU) / times, Memory: all.Memory - none.Memory}
}

func TestBudget(t *testing.T) {
	if _, err := peakMemory(); err != nil {
		t.Skip(err)
	}
	testbedtest.Require(t, "kind", nil) // not with -short, before it takes its time
	s, err := large(t)
	testbedtest.Require(t, "kind", err)
	cost := s.cost(t)
	for range 2 { // others that share a core's caches make it slower, nothing makes it faster
		again := s.cost(t)
		cost = usage{min(cost.CPU, again.CPU), min(cost.Memory, again.Memory)}
	}
	require.Less(t, cost.CPU, budgetCPU)
	require.Less(t, cost.Memory, int64(budgetMemory))
}

// An observation of 400 replicas; cpu-ms and peak-MB are of a process that does
// nothing else.
func BenchmarkObserve400(b *testing.B) {
	s, err := large(b)
	if err != nil {
		b.Skip(err)
	}
	cost := s.cost(b)
	o, err := ofChain(s.URL, 400)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		got, err := o.Observe(b.Context())
		require.NoError(b, err)
		require.Len(b, got.Replicas, 400)
	}
	b.ReportMetric(float64(cost.CPU.Microseconds())/1e3, "cpu-ms")
	b.ReportMetric(float64(cost.Memory)/1e6, "peak-MB")
}
