package analysis

import (
	"cmp"
	"fmt"
	"slices"
)

// ScaleFile is scale.json: what `heartbed scale` measured.
type ScaleFile struct {
	Points []ScalePoint `json:"points"`
}

// ScalePoint is the scheduling time of a policy at one size: one step of the
// policy without collecting metrics and without applying the table.
type ScalePoint struct {
	Policy     string  `json:"policy"`
	Replicas   int     `json:"replicas"` // in total
	Nodes      int     `json:"nodes"`
	Components int     `json:"components"`
	Runs       int     `json:"runs"`
	Seconds    float64 `json:"seconds"` // median over the runs
	MinSeconds float64 `json:"minSeconds,omitempty"`
	MaxSeconds float64 `json:"maxSeconds,omitempty"`
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

// scaleSeconds is the time of a policy at a size.
func (s Set) scaleSeconds(policy string, replicas int) (float64, error) {
	for _, p := range s.Scale {
		if p.Policy == policy && p.Replicas == replicas && p.Seconds > 0 {
			return p.Seconds, nil
		}
	}
	return 0, missingError{[]string{fmt.Sprintf("the scheduling time of %s with %d replicas was not measured", policy, replicas)}}
}

// exponent is the growth of a policy's time between two sizes.
func (s Set) exponent(policy string, from, to int) (float64, error) {
	a, errA := s.scaleSeconds(policy, from)
	b, errB := s.scaleSeconds(policy, to)
	if err := joinMissing(errA, errB); err != nil {
		return 0, err
	}
	return growthExponent(a, b, from, to), nil
}
