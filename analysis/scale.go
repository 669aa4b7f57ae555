package analysis

import (
	"cmp"
	"fmt"
	"slices"

	"heartbed/experiments"
)

// ScalePoint is the scheduling time of a policy at one size: one step of the
// policy without collecting metrics and without applying the table.
type ScalePoint struct {
	Policy                      string
	Replicas, Nodes, Components int // in total
	Steps                       int
	Ms                          float64 // median over the steps
}

// scalePoints lists what a report measured.
func scalePoints(r experiments.ScaleReport) []ScalePoint {
	points := make([]ScalePoint, len(r.Rows))
	for i, row := range r.Rows {
		points[i] = ScalePoint{row.Policy, row.Replicas, r.Nodes, r.Components, r.Steps, row.TotalMs}
	}
	return points
}

// scalePolicies are the policies that were measured, in the report's order.
func scalePolicies(points []ScalePoint) []string {
	var names []string
	for _, p := range points {
		if !slices.Contains(names, p.Policy) {
			names = append(names, p.Policy)
		}
	}
	slices.SortFunc(names, comparePolicies)
	return names
}

// scaleOf gives the points of a policy by rising size.
func scaleOf(points []ScalePoint, policy string) []ScalePoint {
	var own []ScalePoint
	for _, p := range points {
		if p.Policy == policy {
			own = append(own, p)
		}
	}
	slices.SortStableFunc(own, func(a, b ScalePoint) int { return cmp.Compare(a.Replicas, b.Replicas) })
	return own
}

// scaleMs is the time of a policy at a size.
func (s Set) scaleMs(policy string, replicas int) (float64, error) {
	for _, p := range s.Scale {
		if p.Policy == policy && p.Replicas == replicas && p.Ms > 0 {
			return p.Ms, nil
		}
	}
	return 0, missingError{[]string{fmt.Sprintf("the scheduling time of %s with %d replicas was not measured", policy, replicas)}}
}

// exponent is the growth of a policy's time between two sizes.
func (s Set) exponent(policy string, from, to int) (float64, error) {
	a, errA := s.scaleMs(policy, from)
	b, errB := s.scaleMs(policy, to)
	if err := joinMissing(errA, errB); err != nil {
		return 0, err
	}
	return growthExponent(a, b, from, to), nil
}
