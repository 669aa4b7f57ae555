package policy

import (
	"fmt"
	"time"

	"heartbed/heart"
)

// delays are the round-trip times between nodes in whole microseconds. Where
// nothing was measured the largest known value stands in, never zero, so that
// an unknown link is never the preferred one.
type delays struct {
	us       []int64 // row-major, nodes * nodes
	measured []bool  // nil = all
	nodes    int
	missing  int
}

func newDelays(t heart.Topology) delays {
	n := len(t.Nodes)
	d := delays{us: make([]int64, 0, n*n), nodes: n}
	worst := int64(1)
	for _, row := range t.RTT {
		for _, rtt := range row {
			us := int64(rtt / time.Microsecond)
			if rtt == heart.Unmeasured {
				us = -1
				d.missing++
			}
			d.us, worst = append(d.us, us), max(worst, us)
		}
	}
	if d.missing == 0 {
		return d
	}
	d.measured = make([]bool, n*n)
	for i, us := range d.us {
		if d.measured[i] = us >= 0; us < 0 {
			d.us[i] = worst
		}
	}
	return d
}

func (d delays) between(from, to int) int64 { return d.us[from*d.nodes+to] }

// from is the delays from a node to all.
func (d delays) from(node int) []int64 { return d.us[node*d.nodes : (node+1)*d.nodes] }

func (d delays) known(from, to int) bool {
	return d.measured == nil || d.measured[from*d.nodes+to]
}

// warnings says that round-trip times are missing, if any are.
func (d delays) warnings() []string {
	if d.missing == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d round-trip times are not measured: the largest known one stands in",
		d.missing, d.nodes*d.nodes)}
}
