package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"heartbed/heart"
	"heartbed/heart/istio"
	"heartbed/heart/policy"
	"heartbed/heart/prom"
)

// applyTime bounds one step and what is done at the end of the program.
const applyTime = 20 * time.Second

// controller is the program's state.
type controller struct {
	config  Config
	flags   flags
	client  kubernetes.Interface
	dynamic dynamic.Interface
	cluster *cluster
	loop    heart.Controller
	istio   *istio.Router // nil over xDS
	xds     *xdsRouter    // nil over Istio
	metrics *metrics
	events  *events
	log     *slog.Logger
	out     io.Writer

	mu    sync.Mutex
	table *heart.RoutingTable // that the last step put into force
}

func newController(config Config, f flags, to *rest.Config, log *slog.Logger, out io.Writer) (*controller, error) {
	c := &controller{config: config, flags: f, log: log, out: out, metrics: newMetrics()}
	// One request at a time needs no limit of its own. That of client-go, five a
	// second, would let no step at 400 pods end, each of which gets labels.
	to.QPS = -1
	compact := rest.CopyConfig(to)
	compact.ContentType, compact.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	var err error
	if c.client, err = kubernetes.NewForConfig(compact); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(to); err != nil {
		return nil, err
	}
	if c.cluster, err = newCluster(config, c.client); err != nil {
		return nil, err
	}
	observer, err := prom.New(config.Prometheus, c.cluster.topology)
	if err != nil {
		return nil, err
	}
	c.loop = heart.Controller{Observer: fresh{observer, config.MaxAge, time.Now, c.metrics}, Now: time.Now}
	if c.loop.Policy, err = policy.New(config.Policy, config.Params); err != nil {
		return nil, err
	}
	if c.istio, err = newIstio(c.dynamic, c.client, config, log); err != nil {
		return nil, err
	}
	c.events = newEvents(c.client, config)
	switch {
	case f.dryRun:
		c.loop.Router = dryRun{c}
	case config.Router == "xds":
		c.xds = newXDS(c.cluster)
		c.loop.Router = c.xds
	default:
		c.loop.Router = c.istio
	}
	return c, nil
}

func newIstio(client dynamic.Interface, core kubernetes.Interface, config Config, log *slog.Logger) (*istio.Router, error) {
	return istio.New(client, core, istio.Options{
		Namespace: config.Namespace, Services: config.Services, ComponentLabel: config.ComponentLabel, Localities: config.Localities, Log: log,
	})
}

// fresh refuses an observation that is too old to decide by. The end of one is
// in the time of Prometheus: where the clocks differ by more than maxAge,
// nobody knows how old it is.
type fresh struct {
	heart.Observer
	maxAge  time.Duration
	now     func() time.Time
	metrics *metrics
}

func (f fresh) Observe(ctx context.Context) (heart.Observation, error) {
	o, err := f.Observer.Observe(ctx)
	if err != nil {
		return o, err
	}
	age := f.now().Sub(o.End).Round(time.Millisecond)
	f.metrics.age.Set(age.Seconds())
	switch {
	case age > f.maxAge:
		return o, fmt.Errorf("the observation ended %v ago, expected %v at most: Prometheus has nothing newer, or its clock is behind", age, f.maxAge)
	case age < -f.maxAge:
		return o, fmt.Errorf("the observation ends %v from now: the clock of Prometheus is ahead, or this machine's is behind", -age)
	}
	return o, nil
}

// dryRun prints what the router would do.
type dryRun struct{ c *controller }

func (d dryRun) Route(ctx context.Context, table heart.RoutingTable) error {
	if d.c.config.Router == "xds" {
		return printTable(d.c.out, table)
	}
	plan, err := d.c.istio.Plan(ctx, table)
	if err != nil {
		return err
	}
	for _, w := range plan.Warnings {
		fmt.Fprintln(d.c.out, "warning:", w)
	}
	for _, change := range plan.Changes {
		fmt.Fprintf(d.c.out, "%s\n%s", change, change.Diff)
	}
	if len(plan.Changes) == 0 {
		fmt.Fprintln(d.c.out, "nothing would change")
	}
	return nil
}

// run controls until ctx ends; with --once, for one step.
func (c *controller) run(ctx context.Context) error {
	if err := c.cluster.reach(ctx); err != nil {
		return err
	}
	c.cluster.start()
	defer c.cluster.stop()
	defer c.events.stop()
	if err := c.cluster.wait(ctx); err != nil {
		return err
	}
	if c.flags.once {
		return c.once(ctx)
	}
	stop, err := c.serve()
	if err != nil {
		return err
	}
	if c.flags.dryRun {
		c.lead(ctx)
	} else if err = c.elect(ctx, c.lead); err == nil {
		c.log.Info("ended; the routing table stays in force")
	}
	return errors.Join(err, stop())
}

// once makes one step. One that writes needs the lease: beside a controller
// that decides it would only be overwritten, and move requests to and fro.
func (c *controller) once(ctx context.Context) error {
	if c.flags.dryRun {
		return c.step(ctx)
	}
	if err := c.free(ctx); err != nil {
		return fmt.Errorf("%w; --dry-run shows what a step would change", err)
	}
	done, end := context.WithCancel(ctx)
	defer end()
	stepped := context.Canceled // unless there is a step
	err := c.elect(done, func(held context.Context) { stepped = c.step(held); end() })
	return errors.Join(err, stepped)
}

// lead steps every period, and between two steps refits the table in force
// when replicas come or go. It returns when ctx ends and the step under way
// is done.
func (c *controller) lead(ctx context.Context) {
	c.metrics.leader.Set(1)
	defer c.metrics.leader.Set(0)
	ticker := time.NewTicker(c.config.Period)
	defer ticker.Stop()
	for {
		_ = c.step(ctx) // logged, counted, and tried again in a period
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				waiting = false
			case <-c.cluster.changed:
				c.refit(ctx)
			}
		}
	}
}

// step makes one step and tells of it everywhere. A request to end lets it
// finish, so that no table is left half written.
func (c *controller) step(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTime)
	defer cancel()
	s, err := c.loop.Step(limited)
	for _, w := range append(s.Observation.Warnings, s.Decision.Warnings...) {
		c.log.Warn("step", "warning", w)
	}
	c.metrics.step(s, err)
	if !c.flags.dryRun {
		c.events.step(err)
	}
	if err != nil {
		c.log.Error("step failed, the routing table in force stays", "error", err.Error())
		return err
	}
	c.log.Info("step", "seconds", s.Seconds, "replicas", len(s.Observation.Topology.Replicas), "routes", len(s.Decision.Table.Routes))
	if c.flags.explain {
		if err := explain(c.out, s); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.table = &s.Decision.Table
	c.mu.Unlock()
	return nil
}

// settle is how long replicas may go on changing before the table is refitted.
const settle = time.Second

// refit brings the table in force in line with the replicas that exist.
func (c *controller) refit(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(settle):
	}
	select { // what came meanwhile is covered
	case <-c.cluster.changed:
	default:
	}
	table, err := c.inForce(), error(nil)
	if table == nil || c.flags.dryRun {
		return
	}
	topology, _, err := c.cluster.state()
	if err == nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTime)
		defer cancel()
		err = c.loop.Router.Route(limited, refit(*table, topology))
	}
	if err != nil {
		c.log.Warn("the table in force does not fit the replicas that came or went; the next step will", "error", err.Error())
	}
}

func (c *controller) inForce() *heart.RoutingTable {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table
}

// reset removes all that heart has written, unless a controller would write it
// again. Events are left: the API server drops them after an hour.
func (c *controller) reset(ctx context.Context) error {
	if err := c.free(ctx); err != nil {
		return fmt.Errorf("%w and would write everything again: end it first", err)
	}
	done, err := c.istio.Reset(ctx)
	for _, change := range done {
		fmt.Fprintln(c.out, change)
	}
	return errors.Join(err, c.removeLease(ctx))
}
