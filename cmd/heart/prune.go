package main

import "heartbed/heart"

// refit brings a table in line with the replicas that exist now: those that
// are gone leave their groups, new ones join the group of their component and
// node, and groups without replicas leave the shares. It is what holds between
// two decisions; replicas that no group takes have no route until the next.
func refit(table heart.RoutingTable, t heart.Topology) heart.RoutingTable {
	exists := map[string]bool{}
	for _, r := range t.Replicas {
		exists[r.Name] = true
	}
	type place struct{ component, node string }
	placed, taken := map[place]int{}, map[string]bool{}
	var groups []heart.Group
	for _, g := range table.Groups {
		var replicas []string
		for _, name := range g.Replicas {
			if exists[name] {
				replicas = append(replicas, name)
				taken[name] = true
			}
		}
		g.Replicas = replicas
		placed[place{g.Component, g.Node}] = len(groups)
		groups = append(groups, g)
	}
	for _, r := range t.Replicas {
		i, known := placed[place{r.Component, r.Node}]
		if !known {
			i, known = placed[place{r.Component, ""}]
		}
		if known && !taken[r.Name] {
			groups[i].Replicas = append(groups[i].Replicas, r.Name)
		}
	}
	var now heart.RoutingTable
	left := map[string]bool{}
	for _, g := range groups {
		if len(g.Replicas) > 0 {
			now.Groups = append(now.Groups, g)
			left[g.Name] = true
		}
	}
	for _, r := range table.Routes {
		if !left[r.From] {
			continue
		}
		var shares []heart.Share
		for _, s := range r.Shares {
			if left[s.To] {
				shares = append(shares, s)
			}
		}
		r.Shares = shares
		now.Routes = append(now.Routes, r)
	}
	return now
}
