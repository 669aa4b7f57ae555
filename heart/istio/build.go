package istio

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"heartbed/heart"
)

var errUnsupported = errors.ErrUnsupported

// builder turns a table into objects. It does no I/O.
type builder struct {
	options   Options
	groups    map[string]heart.Group
	selectors map[string]map[string]string
	ready     func(component string, labels map[string]string) bool
	objects   []object
	warnings  []string
}

// build gives the objects of a table in order of components: DestinationRules
// first. The errors of all components are joined.
func build(o Options, table heart.RoutingTable, ready func(component string, labels map[string]string) bool) ([]object, []string, error) {
	b := builder{options: o, groups: make(map[string]heart.Group, len(table.Groups)), ready: ready}
	for _, g := range table.Groups {
		b.groups[g.Name] = g
	}
	var err error
	if b.selectors, err = selectors(table.Groups); err != nil {
		return nil, nil, err
	}
	routes := map[string][]heart.Route{} // by callee component
	for _, r := range table.Routes {
		routes[r.To] = append(routes[r.To], r)
	}
	component := b.subsets
	if o.Localities != nil {
		component = b.distribute
	}
	var errs []error
	for _, to := range slices.Sorted(maps.Keys(routes)) {
		if err := component(to, routes[to]); err != nil {
			errs = append(errs, fmt.Errorf("routes to %q: %w", to, err))
		}
	}
	slices.SortStableFunc(b.objects, func(x, y object) int { return order(x.resource) - order(y.resource) })
	return b.objects, b.warnings, errors.Join(errs...)
}

// subsets writes the routes to a component as a DestinationRule of its groups
// and a VirtualService of the callers' shares. Callers that the table does not
// know take the last route, which leaves them to Istio.
func (b *builder) subsets(to string, routes []heart.Route) error {
	host := b.options.host(to)
	rule := destinationRule{Host: host}
	service := virtualService{Hosts: []string{host}}
	for _, r := range routes {
		balancer, err := simple(r.Balancer)
		if err != nil {
			return err
		}
		shares, err := b.shares(r)
		if err != nil {
			return err
		}
		route := httpRoute{Name: r.From, Match: []match{{SourceLabels: b.source(r.From)}}}
		for _, s := range shares {
			labels := b.selectors[s.group]
			name := subsetName(s.group, balancer, labels)
			if !slices.ContainsFunc(rule.Subsets, func(x subset) bool { return x.Name == name }) {
				rule.Subsets = append(rule.Subsets, subset{name, labels, trafficPolicy{loadBalancer{Simple: balancer}}})
			}
			route.Route = append(route.Route, destination{target{host, name}, s.percent})
		}
		service.HTTP = append(service.HTTP, route)
	}
	service.HTTP = append(service.HTTP, httpRoute{Name: "others", Route: []destination{{Destination: target{Host: host}}}})
	rule.sort()
	return errors.Join(b.add(destinationRules, to, &rule), b.add(virtualServices, to, &service))
}

func (b *builder) add(resource schema.GroupVersionResource, component string, spec any) error {
	o, err := newObject(resource, b.options.name(component), spec)
	b.objects = append(b.objects, o)
	return err
}

// source are the labels of the pods of a caller group.
func (b *builder) source(group string) map[string]string {
	labels := map[string]string{b.options.ComponentLabel: b.groups[group].Component}
	maps.Copy(labels, b.selectors[group])
	return labels
}

// share is a callee group and its part, at least 1 per cent.
type share struct {
	group   string
	percent int
}

// shares rounds those of a route. The part of a group without a ready pod,
// which would fail, goes to the others in proportion.
func (b *builder) shares(r heart.Route) ([]share, error) {
	var to []string
	var weights []uint32
	var sum float64
	for _, s := range r.Shares {
		if s.Weight == 0 {
			continue
		}
		if !b.ready(r.To, b.selectors[s.To]) {
			b.warn("route from %q to %q: group %q has no ready pod and gets nothing", r.From, r.To, s.To)
			continue
		}
		to, weights, sum = append(to, s.To), append(weights, s.Weight), sum+float64(s.Weight)
	}
	if len(to) == 0 {
		return nil, fmt.Errorf("from %q: no group with a share has a ready pod with label %s=%s in namespace %q", r.From, b.options.ComponentLabel, r.To, b.options.Namespace)
	}
	var shares []share
	for i, p := range percent(weights) {
		if p == 0 {
			b.warn("route from %q to %q: the share of %q, %.2f %%, is rounded to 0, because Istio's weights are whole per cent", r.From, r.To, to[i], float64(weights[i])/sum*100)
			continue
		}
		shares = append(shares, share{to[i], p})
	}
	return shares, nil
}

func (b *builder) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}
