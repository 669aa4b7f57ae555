package sim

import (
	"context"
	"fmt"
	"math/rand/v2"

	"heartbed/heart"
	"heartbed/testbed"
	"heartbed/workloads"
)

// Streams of random numbers, one for each purpose, so that a policy that
// draws more of one kind leaves the others as they are.
const (
	arrivalStream uint64 = iota + 1
	_                    // workloads.RequestDraws
	routingStream
	jitterStream
	// from here on testbed.Plan.Bursts

	startStream uint64 = 1 << 32 // start times of pods
)

// world is the state of one simulation.
type world struct {
	plan     testbed.Plan
	topology heart.Topology
	events   eventQueue
	now      int64
	counted  int64 // events processed

	nodes      []*node
	stations   []*station // one a replica of the topology, in its order
	components map[string]*component
	replicas   []replica
	entries    []int32   // replicas that clients connect to
	oneWay     [][]int64 // ns, by caller and callee node
	lastOn     [][]int64 // last arrival on a link, so that jitter keeps the order
	sidecar    []int64   // ns a traversal, by node
	jitter     *rand.Rand

	router   router
	scaled   *autoscaler // nil = replicas stay as they are
	visits   []visit
	free     []int32
	sampler  *workloads.Sampler
	client   client
	scrapes  scraper
	antagons []antagonist
	err      error // first internal fault; ends the run
}

// component is the program that its replicas run.
type component struct {
	index int32
	steps []workloads.Step
	calls [][]int32 // by step: the components called, in order
	odds  [][]float64
}

// replica joins a heart.Replica with what the hot path needs.
type replica struct {
	heart.Replica
	node      int32
	component *component
}

func newWorld(p testbed.Plan) (*world, error) {
	w := &world{plan: p, topology: p.Topology(), components: map[string]*component{}}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("start simulation: %w", err)
	}
	w.buildNodes()
	w.buildComponents()
	w.buildReplicas()
	w.sampler = workloads.NewSampler(p.App.ServiceTime)
	w.jitter = rand.New(rand.NewPCG(p.Seed, jitterStream))
	w.router = newRouter(w, rand.New(rand.NewPCG(p.Seed, routingStream)))
	w.client = newClient(p)
	w.scrapes = newScraper(p.Control)
	w.antagons = newAntagonists(p, w.topology.NodeIndex())
	var err error
	if w.scaled, err = newAutoscaler(w); err != nil {
		return nil, fmt.Errorf("start simulation: autoscale: %w", err)
	}
	return w, nil
}

func (w *world) buildNodes() {
	n := len(w.plan.Nodes)
	w.oneWay, w.lastOn = make([][]int64, n), make([][]int64, n)
	for i, spec := range w.plan.Nodes {
		w.nodes = append(w.nodes, &node{cores: spec.Cores, slowness: spec.Slowness, inflate: 1})
		w.oneWay[i], w.lastOn[i] = make([]int64, n), make([]int64, n)
		for j := range n {
			w.oneWay[i][j] = int64(w.plan.RTT[i][j] / 2)
		}
		traversal := float64(w.plan.Network.Sidecar)
		if w.plan.Network.SidecarScaled {
			traversal *= spec.Slowness
		}
		w.sidecar = append(w.sidecar, int64(traversal))
	}
}

func (w *world) buildComponents() {
	programs := w.plan.App.Components
	if w.plan.Entry.Gateway != "" {
		gateway := workloads.Component{Name: testbed.GatewayComponent, Steps: []workloads.Step{{Call: []string{w.plan.App.Entry}}}}
		programs = append([]workloads.Component{gateway}, programs...)
	}
	for i, c := range programs {
		w.components[c.Name] = &component{index: int32(i), steps: c.Steps}
	}
	for _, c := range programs {
		to := w.components[c.Name]
		for _, s := range c.Steps {
			names, odds := s.Call, []float64(nil)
			if len(s.Choose) > 0 {
				names, odds = choices(s.Choose)
			}
			var indices []int32
			for _, name := range names {
				indices = append(indices, w.components[name].index)
			}
			to.calls, to.odds = append(to.calls, indices), append(to.odds, odds)
		}
	}
}

func (w *world) buildReplicas() {
	at := w.topology.NodeIndex()
	server, entry := w.plan.App.Server, w.plan.App.Entry
	if w.plan.Entry.Gateway != "" {
		entry = testbed.GatewayComponent
	}
	for i, r := range w.topology.Replicas {
		n := at[r.Node]
		w.replicas = append(w.replicas, replica{Replica: r, node: int32(n), component: w.components[r.Component]})
		if r.Component == entry {
			w.entries = append(w.entries, int32(i))
		}
		s := &station{node: w.nodes[n]}
		if r.Component != testbed.GatewayComponent { // the gateway costs no CPU
			s.slots, s.threads = server.Slots, server.Threads
			s.quota = newBandwidth(server, workloads.Mix(w.plan.Seed, uint64(i)))
		}
		w.stations = append(w.stations, s)
		w.nodes[n].stations = append(w.nodes[n].stations, int32(i))
	}
	for i, n := range w.nodes {
		most := 0.0
		for _, s := range n.stations {
			most += w.stations[s].threads
		}
		n.contended = most > n.cores || w.plan.StealsFrom(w.plan.Nodes[i].Name)
	}
}

// run plays warm-up, gap and measured time.
func (w *world) run(ctx context.Context, step func(context.Context) error) (testbed.Measurement, error) {
	w.start()
	for {
		if w.counted&0xffff == 0 && ctx.Err() != nil {
			return testbed.Measurement{}, ctx.Err()
		}
		e, more := w.events.pop()
		if !more || w.client.over || w.err != nil {
			break
		}
		w.now = e.at
		w.counted++
		w.handle(ctx, e, step)
	}
	if w.err != nil {
		return testbed.Measurement{}, w.err
	}
	return w.measurement(), nil
}

func (w *world) start() {
	w.client.start(w)
	w.scrapes.read(w)
	w.events.push(int64(w.scrapes.every), scrape, 0, 0)
	if p := int64(w.plan.Control.Period); p > 0 {
		w.events.push(p, controlStep, 0, 0)
	}
	for i := range w.antagons {
		w.antagons[i].schedule(w, int32(i))
	}
	if w.scaled != nil {
		w.scaled.note(w)
		w.events.push(w.now, scale, 0, 0)
	}
}

func (w *world) handle(ctx context.Context, e event, control func(context.Context) error) {
	switch e.kind {
	case arrive:
		w.begin(e.idx)
	case answer:
		w.answered(e.idx)
	case complete:
		w.completed(e.idx, e.ver)
	case exhaust:
		w.exhausted(e.idx, e.ver)
	case period:
		w.periodEnds(e.idx)
	case send:
		w.client.send(w, e.idx, e.ver)
	case expire:
		w.client.expire(w, e.idx, e.ver)
	case scrape:
		w.scrapes.read(w)
		w.events.push(w.now+int64(w.scrapes.every), scrape, 0, 0)
	case controlStep:
		w.step(ctx, control)
		w.events.push(w.now+int64(w.plan.Control.Period), controlStep, 0, 0)
	case window:
		w.client.endWindow(w)
	case antagonise:
		w.antagons[e.idx].toggle(w, e.idx)
	case phase:
		w.client.endPhase(w)
	case scale:
		w.scaled.act(w)
	case podTurn:
		w.scaled.turn(w, e.idx, e.ver)
	case endpoints:
		w.scaled.dirty = false
		w.step(ctx, control)
	}
}

// step calls the controller. Without a ready replica of the scaled component
// there is nothing to route.
func (w *world) step(ctx context.Context, control func(context.Context) error) {
	if a := w.scaled; a != nil && a.count(func(p *pod) bool { return p.ready }) == 0 {
		return
	}
	if err := control(ctx); err != nil {
		w.client.measured.StepErrors = append(w.client.measured.StepErrors, fmt.Sprintf("at %v: %v", timeOf(w.now), err))
	}
}

// visible is the topology as the controller sees it now: pods that are not
// ready are not in it.
func (w *world) visible() heart.Topology {
	if w.scaled == nil {
		return w.topology
	}
	t := w.topology
	t.Replicas = nil
	for i, r := range w.topology.Replicas {
		if w.present(int32(i)) {
			t.Replicas = append(t.Replicas, r)
		}
	}
	return t
}
