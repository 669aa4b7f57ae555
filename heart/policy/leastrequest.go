package policy

import "heartbed/heart"

// Istio's default: two replicas are drawn with replacement and the one with
// fewer outstanding requests of this proxy is taken (envoy least_request_lb).
var _ = register(Spec{
	Name:    "least-request",
	Summary: "Istio's default: the less busy of two replicas drawn at random, counted by each caller alone",
	New:     func(Values) (heart.Policy, error) { return allReplicas(heart.LeastRequest), nil },
})
