package experiments

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat"

	"heartbed/heart"
	"heartbed/heart/policy"
)

// ScaleOptions says what Scale measures: a chain of components whose replicas
// are dealt over the nodes in turn. Zero values take the defaults.
type ScaleOptions struct {
	Policies   []string
	Replicas   []int  // totals over all components; default 100, 200, 400
	Nodes      int    // default 5
	Components int    // default 5
	Steps      int    // measured, after a fifth as many that are not; default 100
	Seed       uint64 // of round-trip times and loads
}

// ScaleReport is the scheduling time of policies: what Allocate takes, without
// collecting metrics and without applying the table.
type ScaleReport struct {
	Nodes      int           `json:"nodes"`
	Components int           `json:"components"`
	Steps      int           `json:"steps"`
	Rows       []ScaleRow    `json:"rows"`
	Growth     []ScaleGrowth `json:"growth"`
}

// ScaleRow is one policy at one size: medians over the steps, milliseconds.
type ScaleRow struct {
	Policy   string             `json:"policy"`
	Replicas int                `json:"replicas"`
	StageMs  map[string]float64 `json:"stageMs"`
	TotalMs  float64            `json:"totalMs"`
}

// ScaleGrowth is how a policy's time grows with the number of replicas: as
// its power Exponent, fitted to all sizes; null with fewer than two.
type ScaleGrowth struct {
	Policy   string   `json:"policy"`
	Exponent *float64 `json:"exponent"`
}

// Scale measures the scheduling time of each policy at each size. It ends
// early only with ctx.
func Scale(ctx context.Context, o ScaleOptions, now func() time.Time) (ScaleReport, error) {
	o.fillDefaults()
	if err := o.validate(); err != nil {
		return ScaleReport{}, err
	}
	r := ScaleReport{Nodes: o.Nodes, Components: o.Components, Steps: o.Steps}
	for _, name := range o.Policies {
		rows, err := o.measure(ctx, name, now)
		if err != nil {
			return ScaleReport{}, fmt.Errorf("policy %s: %w", name, err)
		}
		r.Rows = append(r.Rows, rows...)
		r.Growth = append(r.Growth, r.growth(name))
	}
	return r, nil
}

func (o *ScaleOptions) fillDefaults() {
	if len(o.Replicas) == 0 {
		o.Replicas = []int{100, 200, 400}
	}
	for _, field := range []struct {
		value    *int
		standard int
	}{{&o.Nodes, 5}, {&o.Components, 5}, {&o.Steps, 100}} {
		if *field.value == 0 {
			*field.value = field.standard
		}
	}
}

func (o ScaleOptions) validate() error {
	var fs Faults
	if len(o.Policies) == 0 {
		fs.add("policies", "found none, expected some of %s", strings.Join(policy.Names(), ", "))
	}
	for _, name := range o.Policies {
		if _, known := policy.Lookup(name); !known {
			fs.add("policies", "found %q, expected some of %s", name, strings.Join(policy.Names(), ", "))
		}
	}
	for _, field := range []struct {
		name  string
		value int
	}{{"nodes", o.Nodes}, {"components", o.Components}, {"steps", o.Steps}} {
		if field.value < 1 {
			fs.add(field.name, "found %d, expected 1 or more", field.value)
		}
	}
	for _, n := range o.Replicas {
		if n < o.Components {
			fs.add("replicas", "found %d, expected at least one for each of the %d components", n, o.Components)
		}
	}
	return fs.err()
}

// measure times the steps of a policy. The sizes take turns, so that a machine
// that warms up or is disturbed for a while does so for all of them.
func (o ScaleOptions) measure(ctx context.Context, name string, now func() time.Time) ([]ScaleRow, error) {
	probes := make([]*scaleProbe, len(o.Replicas))
	for i, replicas := range o.Replicas {
		p, err := policy.New(name, nil)
		if err != nil {
			return nil, err
		}
		// The same seed for all: sizes differ in their replicas, not in their nodes.
		random := rand.New(rand.NewPCG(o.Seed, 0))
		probes[i] = &scaleProbe{policy: p, random: random, stages: map[string][]float64{}}
		probes[i].topology, probes[i].slowness = o.chain(replicas, random)
	}
	for step := -max(1, o.Steps/5); step < o.Steps; step++ {
		for i, p := range probes {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := p.step(now, step >= 0); err != nil {
				return nil, fmt.Errorf("at %d replicas: %w", o.Replicas[i], err)
			}
		}
	}
	rows := make([]ScaleRow, len(probes))
	for i, p := range probes {
		rows[i] = ScaleRow{Policy: name, Replicas: o.Replicas[i], StageMs: map[string]float64{}, TotalMs: median(p.totals)}
		for stage, ms := range p.stages {
			rows[i].StageMs[stage] = median(ms)
		}
	}
	return rows, nil
}

// scaleProbe is a policy at one size and the times it has taken, ms.
type scaleProbe struct {
	policy   heart.Policy
	topology heart.Topology
	slowness map[string]float64
	random   *rand.Rand
	stages   map[string][]float64
	totals   []float64
}

func (p *scaleProbe) step(now func() time.Time, keep bool) error {
	m := &heart.Meter{Now: now}
	observation := loads(p.topology, p.slowness, p.random)
	m.Start()
	if _, err := p.policy.Allocate(observation, m); err != nil || !keep {
		return err
	}
	for stage, seconds := range m.Seconds {
		p.stages[stage] = append(p.stages[stage], seconds*1000)
	}
	p.totals = append(p.totals, withTotal(m.Seconds)["total"]*1000)
	return nil
}

// chain makes the topology: a component calls the next. Nodes are up to 50 ms
// and a factor 3 in speed apart.
func (o ScaleOptions) chain(replicas int, random *rand.Rand) (heart.Topology, map[string]float64) {
	var t heart.Topology
	slowness := map[string]float64{}
	for i := range o.Nodes {
		name := fmt.Sprintf("n%d", i+1)
		t.Nodes = append(t.Nodes, heart.Node{Name: name})
		slowness[name] = 1 + 2*random.Float64()
		row := make([]time.Duration, o.Nodes)
		for j := range row {
			if i != j {
				row[j] = time.Duration(1+random.IntN(50_000)) * time.Microsecond
			}
		}
		t.RTT = append(t.RTT, row)
	}
	for i := range replicas {
		component := fmt.Sprintf("c%d", i%o.Components+1)
		node := t.Nodes[i/o.Components%o.Nodes].Name
		t.Replicas = append(t.Replicas, heart.Replica{Name: fmt.Sprintf("%s-%d", component, i/o.Components+1), Component: component, Node: node})
	}
	for c := 1; c < o.Components; c++ {
		t.Calls = append(t.Calls, heart.Call{From: fmt.Sprintf("c%d", c), To: fmt.Sprintf("c%d", c+1)})
	}
	return t, slowness
}

// loads is what one window measures: CPU time a request by the node's speed,
// give or take 10 %.
func loads(t heart.Topology, slowness map[string]float64, random *rand.Rand) heart.Observation {
	o := heart.Observation{Topology: t, Window: 30 * time.Second, Replicas: make(map[string]heart.Sample, len(t.Replicas))}
	for _, r := range t.Replicas {
		o.Replicas[r.Name] = heart.Sample{CPUSeconds: 3 * slowness[r.Node] * (0.9 + 0.2*random.Float64()), Requests: 600}
	}
	return o
}

func (r ScaleReport) growth(name string) ScaleGrowth {
	g := ScaleGrowth{Policy: name}
	var x, y []float64
	for _, row := range r.Rows {
		if row.Policy == name && row.TotalMs > 0 {
			x, y = append(x, math.Log(float64(row.Replicas))), append(y, math.Log(row.TotalMs))
		}
	}
	if len(x) > 1 && slices.Min(x) < slices.Max(x) {
		_, exponent := stat.LinearRegression(x, y, nil, false)
		g.Exponent = &exponent
	}
	return g
}

// WriteText writes the report as a table for people.
func (r ScaleReport) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "Scheduling time, ms: median of %d steps; %d components in a chain on %d nodes.\n\n", r.Steps, r.Components, r.Nodes)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "policy\treplicas\ttotal\tstages")
	for _, row := range r.Rows {
		var parts []string
		for _, stage := range slices.Sorted(maps.Keys(row.StageMs)) {
			parts = append(parts, fmt.Sprintf("%s %.3f", stage, row.StageMs[stage]))
		}
		fmt.Fprintf(table, "%s\t%d\t%.3f\t%s\n", row.Policy, row.Replicas, row.TotalMs, strings.Join(parts, ", "))
	}
	fmt.Fprintln(table, "\npolicy\ttime grows as replicas to the power")
	for _, g := range r.Growth {
		if g.Exponent == nil {
			fmt.Fprintf(table, "%s\t? (needs two sizes)\n", g.Policy)
			continue
		}
		fmt.Fprintf(table, "%s\t%.2f\n", g.Policy, *g.Exponent)
	}
	return table.Flush()
}
