package provider

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// CostAnnotation on a pod, or on a node for who gives an Options.Cost, tells
// what a request costs there; see ParseCost.
const CostAnnotation = "activescale.heartbed.dev/cost"

// Costs are within a factor of a thousand of 1.
const (
	minCost = 1e-3
	maxCost = 1e3
)

// ParseCost reads the value of CostAnnotation: a decimal number between 0.001
// and 1000.
func ParseCost(text string) (float64, error) {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil || !sensible(cost) {
		return 0, fmt.Errorf("cost %q is no number between %v and %v", text, minCost, maxCost)
	}
	return cost, nil
}

func sensible(cost float64) bool { return cost >= minCost && cost <= maxCost }

// weights gives each pod's cost over the mean of all.
func (p *Provider) weights(live []*corev1.Pod) func(i int) float64 {
	costs, sum := make([]float64, len(live)), 0.0
	for i, pod := range live {
		costs[i] = p.cost(pod)
		sum += costs[i]
	}
	mean := sum / float64(len(live))
	return func(i int) float64 { return costs[i] / mean }
}

// cost is 1 if nobody tells. What cannot be meant is counted and as if not told.
func (p *Provider) cost(pod *corev1.Pod) float64 {
	if text, told := pod.Annotations[CostAnnotation]; told {
		cost, err := ParseCost(text)
		if err == nil {
			return cost
		}
		p.m.badCosts.Inc()
	}
	if p.Cost == nil {
		return 1
	}
	cost, told := p.Cost(pod)
	if !told {
		return 1
	}
	if !sensible(cost) {
		p.m.badCosts.Inc()
		return 1
	}
	return cost
}
