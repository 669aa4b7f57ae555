package xds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"heartbed/heart"
)

// childEnv makes the test binary a caller process of its own: its bootstrap
// can come from the environment only when it starts.
const childEnv = "HEARTBED_TEST_XDS_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		if err := child(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// childJob is what a child process does: it opens Connections channels to a
// component and makes Calls on each, one after the other.
type childJob struct {
	Component          string
	Connections, Calls int
}

// child prints, for each connection, how many calls each replica answered.
func child(raw string) error {
	var job childJob
	if err := json.Unmarshal([]byte(raw), &job); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var seen []map[string]int
	for range job.Connections {
		conn, err := grpc.NewClient(Target(job.Component), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer conn.Close()
		counts := map[string]int{}
		for range job.Calls {
			name, err := call(ctx, conn, "")
			if err != nil {
				return err
			}
			counts[name]++
		}
		seen = append(seen, counts)
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

// runChild runs a caller replica as a process of its own.
func runChild(t *testing.T, server, replica string, job childJob) []map[string]int {
	t.Helper()
	raw, err := json.Marshal(job)
	require.NoError(t, err)
	bootstrap, err := Bootstrap(server, replica)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(raw), BootstrapEnv+"="+string(bootstrap))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var seen []map[string]int
	require.NoError(t, json.Unmarshal(out, &seen))
	return seen
}

// backend is a replica that answers its own name. The request "hold" waits
// until the test releases it.
type backend struct {
	name    string
	server  *grpc.Server
	held    chan struct{} // receives when a request begins to wait
	release chan struct{}
}

const method = "/heartbed.Test/Call"

// startBackend serves on a free loopback port and returns its address.
func startBackend(t *testing.T, name string) (*backend, netip.AddrPort) {
	t.Helper()
	b := &backend{name: name, server: grpc.NewServer(), held: make(chan struct{}, 1), release: make(chan struct{})}
	b.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "heartbed.Test", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: b.answer}},
	}, b)
	l := listen(t, "127.0.0.1:0")
	serve(t, func() error { return b.server.Serve(l) }, b.server.Stop)
	return b, netip.MustParseAddrPort(l.Addr().String())
}

func (b *backend) answer(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var in wrapperspb.StringValue
	if err := decode(&in); err != nil {
		return nil, err
	}
	if in.GetValue() == "hold" {
		b.held <- struct{}{}
		select {
		case <-b.release:
		case <-ctx.Done():
		}
	}
	return wrapperspb.String(b.name), nil
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return l
}

// serve runs a server until the test ends.
func serve(t *testing.T, run func() error, stop func()) {
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = run() })
	t.Cleanup(func() {
		stop()
		wg.Wait()
		require.NoError(t, err)
	})
}

// startServer serves tables about the topology on a free port, or on address.
func startServer(t *testing.T, o Options, address string) (*Server, string) {
	t.Helper()
	s := New(o)
	l := listen(t, address)
	serve(t, func() error { return s.Serve(l) }, s.Stop)
	return s, l.Addr().String()
}

// dial opens a caller replica's channel to a component, in this process.
func dial(t *testing.T, server, replica, component string) *grpc.ClientConn {
	t.Helper()
	bootstrap, err := Bootstrap(server, replica)
	require.NoError(t, err)
	resolver, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	require.NoError(t, err)
	conn, err := grpc.NewClient(Target(component), grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	conn.Connect()
	return conn
}

// call returns the name of the replica that answered.
func call(ctx context.Context, conn *grpc.ClientConn, request string) (string, error) {
	var out wrapperspb.StringValue
	err := conn.Invoke(ctx, method, wrapperspb.String(request), &out)
	return out.GetValue(), err
}

// picks makes n calls, none of which may fail, and counts who answered.
func picks(t *testing.T, conn *grpc.ClientConn, n int) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for range n {
		name, err := call(t.Context(), conn, "")
		require.NoError(t, err)
		counts[name]++
	}
	return counts
}

// requireShares fails when a count is further from its binomial mean than 4.5
// standard deviations (one good run in 100,000), or when a replica without a
// share was picked.
func requireShares(t *testing.T, want map[string]float64, counts map[string]int) {
	t.Helper()
	n := 0
	for _, c := range counts {
		n += c
	}
	require.Subset(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(counts)))
	for name, p := range want {
		sd := math.Sqrt(float64(n) * p * (1 - p))
		require.InDeltaf(t, float64(n)*p, counts[name], 4.5*sd, "replica %s of %v", name, counts)
	}
}

// pair is a topology of callers d1, d2 and the named replicas of e, and
// servers for the latter.
func pair(t *testing.T, callees ...string) (Options, map[string]*backend) {
	t.Helper()
	o := Options{Addresses: map[string]netip.AddrPort{}, Topology: heart.Topology{
		Nodes: []heart.Node{{Name: "n1"}}, RTT: [][]time.Duration{{0}},
		Replicas: []heart.Replica{{Name: "d1", Component: "d", Node: "n1"}, {Name: "d2", Component: "d", Node: "n1"}},
		Calls:    []heart.Call{{From: "d", To: "e"}},
	}}
	backends := map[string]*backend{}
	for _, name := range callees {
		o.Topology.Replicas = append(o.Topology.Replicas, heart.Replica{Name: name, Component: "e", Node: "n1"})
		backends[name], o.Addresses[name] = startBackend(t, name)
	}
	return o, backends
}

// split gives the routes of both callers: groups of e by name, with weights.
type split struct {
	group    string
	weight   uint32
	replicas []string
}

func table(b heart.Balancer, splits ...split) heart.RoutingTable {
	t := heart.RoutingTable{Groups: []heart.Group{{Name: "d", Component: "d", Replicas: []string{"d1", "d2"}}}}
	r := heart.Route{From: "d", To: "e", Balancer: b}
	for _, s := range splits {
		t.Groups = append(t.Groups, heart.Group{Name: s.group, Component: "e", Replicas: s.replicas})
		r.Shares = append(r.Shares, heart.Share{To: s.group, Weight: s.weight})
	}
	t.Routes = []heart.Route{r}
	return t
}

// one is a share for a single replica.
func one(name string, weight uint32) split { return split{name, weight, []string{name}} }

// waitAcked waits for both callers of pair, or fails.
func waitAcked(t *testing.T, s *Server) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	took, err := s.WaitAcked(ctx)
	require.NoError(t, err)
	return took
}

// settle waits until 20 calls in a row are answered by the replicas alone, and
// each of them has answered: a locality takes part only once it is connected,
// and an accepted table says nothing about that. No call may fail meanwhile.
func settle(t *testing.T, conn *grpc.ClientConn, replicas ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	seen := map[string]bool{}
	for row := 0; row < 20 || len(seen) < len(replicas); row++ {
		require.True(t, time.Now().Before(deadline), "calls do not settle on %v", replicas)
		name, err := call(t.Context(), conn, "")
		require.NoError(t, err)
		if seen[name] = true; !slices.Contains(replicas, name) {
			row, seen = -1, map[string]bool{}
		}
	}
}
