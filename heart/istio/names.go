package istio

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"heartbed/heart"
)

// The labels that the router keeps on pods.
const (
	NodeLabel    = "heartbed.dev/node"
	ReplicaLabel = "heartbed.dev/replica"
)

// maxName is the length of a DNS label and of a label's value.
const maxName = 63

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// labelValue shortens a node's or pod's name, which may be longer than a
// label's value.
func labelValue(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName-9] + "-" + digest(name)
}

// subsetName names the pods with these labels, balanced so. The digest makes
// a name mean the same for ever: a proxy that still holds the route of an
// older table never sends to other pods than that table said.
func subsetName(group, balancer string, labels map[string]string) string {
	meaning := balancer
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		meaning += "," + key + "=" + labels[key]
	}
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(group))
	plain = strings.Trim(plain[:min(len(plain), maxName-9)], "-")
	return strings.TrimPrefix(plain+"-"+digest(meaning), "-")
}

// simple is Istio's word for how a replica is picked inside a group.
func simple(b heart.Balancer) (string, error) {
	switch b {
	case heart.Weighted, heart.RoundRobin:
		return "ROUND_ROBIN", nil
	case heart.LeastRequest:
		return "LEAST_REQUEST", nil
	}
	return "", fmt.Errorf("%w: Istio cannot be told to balance %s, because it picks for every request", errUnsupported, b)
}

// selectors says by which labels each group of the table is found, apart from
// its component: none for a whole component, else its node where no other
// group of the component has that, else the pod. Other groups have no label
// of their own and give an error. Labels by node let a pod that comes between
// two tables take part at once.
func selectors(groups []heart.Group) (map[string]map[string]string, error) {
	type place struct{ component, node string }
	ofComponent, ofPlace := map[string]int{}, map[place]int{}
	for _, g := range groups {
		ofComponent[g.Component]++
		ofPlace[place{g.Component, g.Node}]++
	}
	found := make(map[string]map[string]string, len(groups))
	for _, g := range groups {
		switch {
		case g.Node == "" && ofComponent[g.Component] == 1:
			found[g.Name] = nil
		case g.Node != "" && ofPlace[place{g.Component, g.Node}] == 1:
			found[g.Name] = map[string]string{NodeLabel: labelValue(g.Node)}
		case len(g.Replicas) == 1:
			found[g.Name] = map[string]string{ReplicaLabel: labelValue(g.Replicas[0])}
		default:
			return nil, fmt.Errorf("%w: group %q: found %d replicas on several nodes or beside another group, expected a whole component, all replicas on a node, or one replica", errUnsupported, g.Name, len(g.Replicas))
		}
	}
	return found, nil
}
