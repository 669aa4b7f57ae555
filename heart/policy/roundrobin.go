package policy

import "heartbed/heart"

var _ = register(Spec{
	Name:    "roundrobin",
	Summary: "every caller takes all replicas in turn",
	New:     func(Values) (heart.Policy, error) { return allReplicas(heart.RoundRobin), nil },
})
