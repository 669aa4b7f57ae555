package xds_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"heartbed/heart"
	"heartbed/heart/xds"
)

// A server for one caller replica, d1, that sends two thirds of its requests
// to e1. Whoever starts d1 sets its bootstrap in the environment; d1 then
// dials the target and blank-imports google.golang.org/grpc/xds.
func Example() {
	server := xds.New(xds.Options{
		Addresses: map[string]netip.AddrPort{
			"e1": netip.MustParseAddrPort("127.0.0.1:9001"), "e2": netip.MustParseAddrPort("127.0.0.1:9002"),
		},
		Topology: heart.Topology{
			Nodes: []heart.Node{{Name: "n1"}}, RTT: [][]time.Duration{{0}},
			Replicas: []heart.Replica{
				{Name: "d1", Component: "d", Node: "n1"}, {Name: "e1", Component: "e", Node: "n1"}, {Name: "e2", Component: "e", Node: "n1"},
			},
			Calls: []heart.Call{{From: "d", To: "e"}},
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go server.Serve(listener)
	defer server.Stop()

	err = server.Route(context.Background(), heart.RoutingTable{
		Groups: []heart.Group{
			{Name: "d", Component: "d", Replicas: []string{"d1"}},
			{Name: "e1", Component: "e", Replicas: []string{"e1"}}, {Name: "e2", Component: "e", Replicas: []string{"e2"}},
		},
		Routes: []heart.Route{{From: "d", To: "e", Balancer: heart.Weighted, Shares: []heart.Share{{To: "e1", Weight: 2}, {To: "e2", Weight: 1}}}},
	})
	fmt.Println("route:", err)

	bootstrap, err := xds.Bootstrap("127.0.0.1:18000", "d1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s=%s\n", xds.BootstrapEnv, bootstrap)
	fmt.Println("target:", xds.Target("e"))
	for _, ack := range server.Acks() {
		fmt.Println(ack.Replica, "connected:", ack.Streams > 0, "missing:", ack.Missing)
	}
	// Output:
	// route: <nil>
	// GRPC_XDS_BOOTSTRAP_CONFIG={"node":{"id":"d1"},"xds_servers":[{"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3","ignore_resource_deletion"],"server_uri":"127.0.0.1:18000"}]}
	// target: xds:///e
	// d1 connected: false missing: [e]
}
