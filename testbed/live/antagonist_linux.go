package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/workloads/service"
)

// What a plan's antagonists take of a node is taken off its quota; nothing of
// the testbed burns it. So it is gone whatever the replicas ask for, as in the
// simulator, where a burner beside them would get its fair share and no more,
// and the other nodes of this machine do not feel it. What they inflate is
// told to the replicas.

const (
	// leastCores is what a node keeps when all of it is taken: the kernel's
	// least quota in each of its usual periods of 100 ms. The simulator leaves
	// nothing.
	leastCores = 0.01
	// tellLimit is how long a replica may take to be told something. One that
	// is throttled takes its time.
	tellLimit = 10 * time.Second
	// burstLate is by how much a burst may begin or end late without a word in
	// the result: less than any CFS period that a replica could wait for.
	burstLate = 100 * time.Millisecond
)

// disturber plays the antagonists of a run.
type disturber struct {
	*Session
	bursts []testbed.Bursts
	due    []time.Time   // by burst: when its present pause or burst ends
	now    []disturbance // by node
}

// disturbance is what a node is under.
type disturbance struct {
	cores   float64 // that are left
	inflate float64
}

// antagonise plays the plan's antagonists from the start of the warm-up until
// ctx ends, and then gives all back.
func (s *Session) antagonise(ctx context.Context) error {
	d := disturber{Session: s, bursts: s.Layout.Plan.Bursts()}
	if len(d.bursts) == 0 {
		return nil
	}
	for i := range d.bursts {
		d.due = append(d.due, s.Began.Add(d.bursts[i].Length()))
	}
	for _, n := range s.Layout.Nodes {
		d.now = append(d.now, disturbance{cores: n.Cores, inflate: 1})
	}
	late, err := d.play(ctx)
	if late > burstLate {
		s.Notes = append(s.Notes, fmt.Sprintf("antagonists: a burst began or ended %v late", late.Round(time.Millisecond)))
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellLimit)
	defer cancel()
	return errors.Join(err, d.end(after))
}

// play begins and ends bursts until ctx ends, and gives by how much one was late.
func (d *disturber) play(ctx context.Context) (late time.Duration, err error) {
	at := d.Layout.Topology.NodeIndex()
	for {
		i := 0
		for k := range d.due {
			if d.due[k].Before(d.due[i]) {
				i = k
			}
		}
		if Pause(ctx, time.Until(d.due[i])) != nil {
			return late, nil
		}
		b := &d.bursts[i]
		b.Active = !b.Active
		if err := d.disturb(ctx, at[b.Node]); ctx.Err() != nil {
			return late, nil
		} else if err != nil {
			return late, fmt.Errorf("antagonist on node %s: %w", b.Node, err)
		}
		late = max(late, time.Since(d.due[i]))
		d.due[i] = d.due[i].Add(b.Length())
	}
}

// end ends all bursts.
func (d *disturber) end(ctx context.Context) error {
	for i := range d.bursts {
		d.bursts[i].Active = false
	}
	var errs []error
	for i := range d.now {
		errs = append(errs, d.disturb(ctx, i))
	}
	return errors.Join(errs...)
}

// disturb puts into force what the bursts under way do to node i. A node gets
// back cores before anything else and loses them after it, so that replicas
// that have to be told something can hear it.
func (d *disturber) disturb(ctx context.Context, i int) error {
	node := d.Layout.Nodes[i]
	was, now := d.now[i], disturbance{cores: node.Cores, inflate: 1}
	for _, b := range d.bursts {
		if b.Active && b.Node == node.Name {
			now.cores -= b.StealCores
			now.inflate *= b.Inflate
		}
	}
	now.cores = max(now.cores, min(leastCores, node.Cores))
	d.now[i] = now
	var errs []error
	if now.cores > was.cores {
		errs = append(errs, d.leave(i, was.cores, now.cores))
	}
	if now.inflate != was.inflate {
		errs = append(errs, d.inflate(ctx, i, now.inflate))
	}
	if now.cores < was.cores {
		errs = append(errs, d.leave(i, was.cores, now.cores))
	}
	return errors.Join(errs...)
}

// leave changes what node i has left. Under cgroup v1 no group may have a quota
// above that of the group around it; so a replica's own quota is lifted while
// less than that is left to its node. It would not bind then, and being
// throttled with the node does not count as the replica's throttling, as in
// the simulator.
func (d *disturber) leave(i int, was, now float64) error {
	var lift, lower []func() error
	for k, r := range d.Layout.Replicas {
		own := d.Layout.Limit(r)
		if r.On != i || own.Cores <= min(was, now) || own.Cores > max(was, now) {
			continue
		}
		lift = append(lift, func() error { return d.Groups[k].Limit(tc.CPULimit{}) })
		lower = append(lower, func() error { return d.Groups[k].Limit(own) })
	}
	node := func() error { return d.NodeGroups[i].Limit(d.Layout.NodeLimit(now)) }
	steps := append(lift, node)
	if now > was {
		steps = append([]func() error{node}, lower...)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// inflate tells all replicas of node i. The gateway uses no CPU in the plan.
func (d *disturber) inflate(ctx context.Context, i int, factor float64) error {
	here := slices.DeleteFunc(slices.Clone(d.Layout.Replicas), func(r Replica) bool {
		return r.On != i || r.Component == testbed.GatewayComponent
	})
	errs := make([]error, len(here))
	var all sync.WaitGroup
	for k, r := range here {
		all.Go(func() { errs[k] = d.tell(ctx, r, service.InflationPath, strconv.FormatFloat(factor, 'g', -1, 64)) })
	}
	all.Wait()
	return errors.Join(errs...)
}
