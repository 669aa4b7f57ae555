package main

import (
	"context"

	"heartbed/heart"
	"heartbed/heart/xds"
)

// xdsRouter serves tables with the addresses that endpoints have now.
type xdsRouter struct {
	cluster *cluster
	server  *xds.Server
}

func newXDS(c *cluster) *xdsRouter { return &xdsRouter{c, xds.New(xds.Options{})} }

// Route tells the server of the replicas first. That the old table does not
// fit them is no fault: the new one follows at once.
func (r *xdsRouter) Route(ctx context.Context, table heart.RoutingTable) error {
	topology, addresses, err := r.cluster.state()
	if err != nil {
		return err
	}
	_ = r.server.SetReplicas(ctx, topology, addresses)
	return r.server.Route(ctx, table)
}
