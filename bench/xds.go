package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcxds "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
	"heartbed/heart/xds"
)

const (
	xdsClients = 25 // caller replicas, each with a client of its own
	xdsCallees = 5
	xdsTables  = 40 // changes of the table
	hopCallers = 8  // requests outstanding, closed loop
	hopCalls   = 20000
)

// runXDS prints the time from a new table to the last of 25 clients that
// accepted it, and the CPU time of a request and hop, client and server
// together. All run in this process, over loopback.
func runXDS(ctx context.Context, out io.Writer, o options) error {
	b, err := newXDSBench(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	times, err := b.tables(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "table to last ack\ttables\tmedian\tp90\tmax\t")
	fmt.Fprintf(w, "%d clients, %d callees\t%d\t%v\t%v\t%v\t\n", xdsClients, xdsCallees, len(times), rank(times, .5), rank(times, .9), rank(times, 1))
	fmt.Fprintln(w, "CPU a request and hop\trequests\tmedian\tmin\tmax\t")
	for _, path := range []struct {
		name string
		conn *grpc.ClientConn
	}{{fmt.Sprintf("gRPC + xDS, %d callees", xdsCallees), b.clients[0]}, {"gRPC, 1 callee", b.plain}} {
		costs, err := hopCosts(ctx, path.conn, o.reps)
		if err != nil {
			return fmt.Errorf("%s: %w", path.name, err)
		}
		fmt.Fprintf(w, "%s\t%d x %d\t%v\t%v\t%v\t\n", path.name, len(costs), hopCalls, rank(costs, .5), rank(costs, 0), rank(costs, 1))
	}
	return w.Flush()
}

// rank is the value below which a part of the sorted times lies.
func rank(sorted []time.Duration, part float64) time.Duration {
	return sorted[int(part*float64(len(sorted)-1))].Round(100 * time.Nanosecond)
}

// xdsBench is a server of tables, the callees, and clients that are connected.
type xdsBench struct {
	server   *xds.Server
	topology heart.Topology
	clients  []*grpc.ClientConn
	plain    *grpc.ClientConn // to the first callee, without xDS
	stop     []func()
	running  sync.WaitGroup
}

func newXDSBench(ctx context.Context) (b *xdsBench, err error) {
	b = &xdsBench{topology: heart.Topology{
		Nodes: []heart.Node{{Name: "n1"}}, RTT: [][]time.Duration{{0}}, Calls: []heart.Call{{From: "d", To: "e"}},
	}}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	addresses := map[string]netip.AddrPort{}
	for i := range xdsCallees {
		name := fmt.Sprint("e", i)
		b.topology.Replicas = append(b.topology.Replicas, heart.Replica{Name: name, Component: "e", Node: "n1"})
		callee := grpc.NewServer()
		callee.RegisterService(&echo, nil)
		if addresses[name], err = b.serve(callee.Serve, callee.Stop); err != nil {
			return b, err
		}
	}
	for i := range xdsClients {
		b.topology.Replicas = append(b.topology.Replicas, heart.Replica{Name: fmt.Sprint("d", i), Component: "d", Node: "n1"})
	}
	b.server = xds.New(xds.Options{Addresses: addresses, Topology: b.topology})
	at, err := b.serve(b.server.Serve, b.server.Stop)
	if err != nil {
		return b, err
	}
	if err := b.server.Route(ctx, b.table(1)); err != nil {
		return b, err
	}
	return b, b.dial(at.String(), addresses["e0"].String())
}

// serve runs a server on a free loopback port until close.
func (b *xdsBench) serve(run func(net.Listener) error, stop func()) (netip.AddrPort, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	b.running.Go(func() { _ = run(l) }) // a call that fails says so
	b.stop = append(b.stop, stop)
	return netip.ParseAddrPort(l.Addr().String())
}

func (b *xdsBench) dial(server, plain string) error {
	insecure := grpc.WithTransportCredentials(insecure.NewCredentials())
	for i := range xdsClients {
		bootstrap, err := xds.Bootstrap(server, fmt.Sprint("d", i))
		if err != nil {
			return err
		}
		// The bootstrap of a process is one; this gives each client its own.
		resolver, err := grpcxds.NewXDSResolverWithConfigForTesting(bootstrap)
		if err != nil {
			return err
		}
		conn, err := grpc.NewClient(xds.Target("e"), grpc.WithResolvers(resolver), insecure)
		if err != nil {
			return err
		}
		conn.Connect()
		b.clients = append(b.clients, conn)
	}
	var err error
	b.plain, err = grpc.NewClient(plain, insecure)
	return err
}

func (b *xdsBench) close() {
	for _, c := range b.clients {
		c.Close()
	}
	if b.plain != nil {
		b.plain.Close()
	}
	for _, stop := range b.stop {
		stop()
	}
	b.running.Wait()
}

// table gives every callee a group and the first of them the weight.
func (b *xdsBench) table(weight uint32) heart.RoutingTable {
	all := heart.Group{Name: "d", Component: "d"}
	route := heart.Route{From: "d", To: "e", Balancer: heart.Weighted}
	var table heart.RoutingTable
	for _, r := range b.topology.Replicas {
		if r.Component == "d" {
			all.Replicas = append(all.Replicas, r.Name)
			continue
		}
		table.Groups = append(table.Groups, heart.Group{Name: r.Name, Component: "e", Replicas: []string{r.Name}})
		route.Shares = append(route.Shares, heart.Share{To: r.Name, Weight: 1})
	}
	route.Shares[0].Weight = weight
	table.Groups, table.Routes = append(table.Groups, all), []heart.Route{route}
	return table
}

// tables changes the table and returns the times to the last ack, sorted.
func (b *xdsBench) tables(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := b.server.WaitAcked(ctx); err != nil {
		return nil, err
	}
	var times []time.Duration
	for i := range xdsTables {
		if err := b.server.Route(ctx, b.table(uint32(i+2))); err != nil {
			return nil, err
		}
		took, err := b.server.WaitAcked(ctx)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return times, nil
}

const echoMethod = "/heartbed.Bench/Echo"

// echo answers with the payload it was sent.
var echo = grpc.ServiceDesc{
	ServiceName: "heartbed.Bench", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		return in, decode(in)
	}}},
}

// hopCosts returns the CPU time of a request, sorted, of each repetition after
// one that warms up.
func hopCosts(ctx context.Context, conn *grpc.ClientConn, reps int) ([]time.Duration, error) {
	var costs []time.Duration
	for rep := range reps + 1 {
		before, err := processCPU()
		if err != nil {
			return nil, err
		}
		if err := closedLoop(ctx, conn); err != nil {
			return nil, err
		}
		after, err := processCPU()
		if err != nil {
			return nil, err
		}
		if rep > 0 {
			costs = append(costs, (after-before)/hopCalls)
		}
	}
	slices.Sort(costs)
	return costs, nil
}

// closedLoop makes hopCalls calls with hopCallers of them outstanding.
func closedLoop(ctx context.Context, conn *grpc.ClientConn) error {
	var wg sync.WaitGroup
	errs := make([]error, hopCallers)
	for i := range hopCallers {
		wg.Go(func() {
			in, out := wrapperspb.Bytes(make([]byte, 100)), new(wrapperspb.BytesValue)
			for range hopCalls / hopCallers {
				if errs[i] = conn.Invoke(ctx, echoMethod, in, out); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
