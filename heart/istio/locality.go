package istio

import (
	"fmt"
	"maps"
	"slices"

	"heartbed/heart"
)

// distribute writes the routes to a component as the locality distribution of
// a DestinationRule. It knows callers by their locality only: callers on the
// same node must have the same shares. A component that is routed as a whole
// needs no distribution.
func (b *builder) distribute(to string, routes []heart.Route) error {
	balancer, err := simple(routes[0].Balancer)
	if err != nil {
		return err
	}
	var setting localitySetting
	from := map[string]string{} // locality -> caller group
	for _, r := range routes {
		if other, err := simple(r.Balancer); err != nil || other != balancer {
			return fmt.Errorf("%w: locality distribution has one balancer for all callers, found %s and %s", errUnsupported, routes[0].Balancer, r.Balancer)
		}
		d, err := b.distributed(r)
		if err != nil {
			return err
		}
		if first, seen := from[d.From]; seen {
			if i := slices.IndexFunc(setting.Distribute, func(x distribute) bool { return x.From == d.From }); !maps.Equal(setting.Distribute[i].To, d.To) {
				return fmt.Errorf("%w: groups %q and %q call from locality %s with different shares, which locality distribution cannot tell apart", errUnsupported, first, r.From, d.From)
			}
			continue
		}
		from[d.From] = r.From
		setting.Distribute = append(setting.Distribute, d)
	}
	if _, whole := from[""]; whole && len(from) > 1 {
		return fmt.Errorf("%w: locality distribution has shares for all callers or for none", errUnsupported)
	} else if whole {
		setting.Distribute = nil
	}
	setting.Enabled = setting.Distribute != nil
	return b.add(destinationRules, to, &destinationRule{
		Host: b.options.host(to), TrafficPolicy: &trafficPolicy{loadBalancer{Simple: balancer, LocalityLbSetting: &setting}},
	})
}

// distributed gives the distribution of one route; the zero one, without
// localities, for a route to a whole component.
func (b *builder) distributed(r heart.Route) (distribute, error) {
	shares, err := b.shares(r)
	if err != nil || len(b.selectors[shares[0].group]) == 0 {
		return distribute{}, err
	}
	d := distribute{To: map[string]int{}}
	if d.From, err = b.locality(r.From); err != nil {
		return distribute{}, err
	}
	for _, s := range shares {
		at, err := b.locality(s.group)
		if err != nil {
			return distribute{}, err
		}
		if _, taken := d.To[at]; taken {
			return distribute{}, fmt.Errorf("%w: two groups of %q are in locality %s", errUnsupported, r.To, at)
		}
		d.To[at] = s.percent
	}
	return d, nil
}

// locality of the node on which all pods of a group are.
func (b *builder) locality(group string) (string, error) {
	g := b.groups[group]
	if _, byNode := b.selectors[group][NodeLabel]; !byNode {
		return "", fmt.Errorf("%w: group %q: locality distribution needs groups that are all replicas on a node", errUnsupported, group)
	}
	at, known := b.options.Localities[g.Node]
	if !known {
		return "", fmt.Errorf("group %q: node %q has no locality", group, g.Node)
	}
	return at, nil
}
