package prom

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"heartbed/heart"
)

// withRTT copies the matrix of round-trip times, which the caller may keep.
// One that is missing gets no times but those of a node to itself.
func withRTT(t heart.Topology) heart.Topology {
	if t.RTT == nil {
		for i := range t.Nodes {
			row := slices.Repeat([]time.Duration{heart.Unmeasured}, len(t.Nodes))
			row[i] = 0
			t.RTT = append(t.RTT, row)
		}
		return t
	}
	rows := make([][]time.Duration, len(t.RTT))
	for i, row := range t.RTT {
		rows[i] = slices.Clone(row)
	}
	t.RTT = rows
	return t
}

// roundTrips puts the measured round-trip times into the topology. A pair that
// was not measured keeps what the caller gave; one that two series claim to
// have measured is not measured.
func (r *round) roundTrips(ctx context.Context) error {
	if r.rtt.promql == "" {
		return nil
	}
	vector, err := r.vector(ctx, r.rtt, r.rtt.promql, r.at)
	if err != nil {
		return err
	}
	sources, targets := r.join(r.rtt, "node", r.rtt.labels.Source), r.join(r.rtt, "node", r.rtt.labels.Target)
	measured, faulty := map[[2]string]*model.Sample{}, map[[2]string]string{}
	for _, sample := range vector {
		l := labelsOf(sample.Metric)
		from, known := sources.name(l)
		to, alsoKnown := targets.name(l)
		if !known || !alsoKnown {
			continue
		}
		pair := [2]string{from, to}
		if other, twice := measured[pair]; twice {
			faulty[pair] = "two series measure the same (" + differences(labelsOf(other.Metric), l) + ")"
		}
		if !possible(model.SamplePair{Value: sample.Value}) || sample.Value == 0 && from != to {
			faulty[pair] = "not above zero or no finite number"
		}
		measured[pair] = sample
	}
	for _, j := range []*join{sources, targets} {
		if err := j.err(r.rtt.promql); err != nil {
			return err
		}
	}
	for i, from := range r.topology.Nodes {
		for j, to := range r.topology.Nodes {
			pair := [2]string{from.Name, to.Name}
			sample, found := measured[pair]
			switch {
			case faulty[pair] != "":
				r.absent.add("rtt: "+faulty[pair], from.Name+" to "+to.Name)
			case found:
				r.topology.RTT[i][j] = time.Duration(float64(sample.Value) * float64(time.Second))
			case i != j:
				r.absent.add("rtt: no series", from.Name+" to "+to.Name)
			}
		}
	}
	return nil
}
