package netns

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heartbed/heart/xds"
	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/workloads/service"
)

// stage is one step of setting a run up, with the time it may take.
type stage struct {
	name  string
	limit time.Duration
	do    func(context.Context) error
}

// start stands a run up. Whatever fails, what was made until then is undone.
func start(ctx context.Context, o Options, l layout) (testbed.Session, error) {
	if err := errors.Join(isRoot(), CheckClean(o.journals())); err != nil {
		return nil, err
	}
	s, err := newSession(o, l)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var slowest stage
	var longest time.Duration
	for _, st := range []stage{
		{"create the folder", 10 * time.Second, s.makeFolder},
		{"find or build the workload program", 10 * time.Minute, s.findProgram},
		{"create the CPU groups", 10 * time.Second, s.makeGroups},
		{"create the namespaces and links", 30 * time.Second, s.makeNamespaces},
		{"shape the links", 30 * time.Second, s.shapeLinks},
		{"measure the round-trip times", 2 * time.Minute, s.verifyRoundTrips},
		{"measure the CPU quotas", time.Minute, s.verifyQuotas},
		{"serve xDS", 10 * time.Second, s.serveXDS},
		{"start the replicas", time.Minute, s.launchReplicas},
		{"wait for the replicas", time.Minute, s.awaitReplicas},
	} {
		at := time.Now()
		if err := st.run(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		took := time.Since(at)
		if o.OnStage != nil {
			o.OnStage(st.name, took)
		}
		if took > longest {
			slowest, longest = st, took
		}
	}
	s.notes = append(s.notes, fmt.Sprintf("set-up: %d nodes and %d processes stood after %.1f s, of which to %s %.1f s",
		len(l.nodes), len(l.replicas), time.Since(began).Seconds(), slowest.name, longest.Seconds()))
	return s, nil
}

func (st stage) run(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, st.limit)
	defer cancel()
	err := st.do(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		err = fmt.Errorf("gave up after %v: %w", st.limit, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", st.name, err)
	}
	return nil
}

// newSession opens the journal of a new run.
func newSession(o Options, l layout) (*session, error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("name the run: %w", err)
	}
	run := hex.EncodeToString(id[:])
	began, err := startTime(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("own start time: %w", err)
	}
	journals, err := filepath.Abs(o.journals())
	if err != nil {
		return nil, fmt.Errorf("find folder of journals: %w", err)
	}
	j, err := openJournal(journals, run, os.Getpid(), began)
	if err != nil {
		return nil, err
	}
	s := &session{
		options: o, layout: l, run: run, journal: j,
		// Beside the journal, so that a boot empties both or neither.
		folder: filepath.Join(journals, folderPrefix+run),
		bridge: namespacePrefix + run + "-switch", client: namespacePrefix + run + "-client",
	}
	for i := range l.nodes {
		s.nodes = append(s.nodes, fmt.Sprintf("%s%s-%d", namespacePrefix, run, i+1))
	}
	s.scraper, s.told = newScraper(l, s.bridge), told{}
	return s, nil
}

func (s *session) makeFolder(context.Context) error {
	if err := s.claim(kindFolder, s.folder); err != nil {
		return err
	}
	return os.Mkdir(s.folder, 0o755)
}

// claim journals that something is about to be made. What is there already is
// somebody else's: it is an error, and not journalled, or it would be removed.
func (s *session) claim(k kind, name string) error {
	there, err := exists(k, name)
	if err != nil {
		return err
	}
	if there {
		return fmt.Errorf("%s %s is there already and not of this run", k, name)
	}
	return s.journal.add(entry{Kind: k, Name: name})
}

func (s *session) findProgram(ctx context.Context) (err error) {
	s.program, err = s.options.workload(ctx, s.makeBuildFolder)
	return err
}

// makeBuildFolder makes a folder in which to build the program: that of the
// run may lie on a disk whose programs may not be executed, as /run often is.
func (s *session) makeBuildFolder() (string, error) {
	dir := filepath.Join(os.TempDir(), folderPrefix+s.run+"-build")
	if err := s.claim(kindFolder, dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o755)
}

// makeGroups creates a group for every node and inside it one for each of its
// replicas.
func (s *session) makeGroups(context.Context) error {
	root := groupPrefix + s.run
	if err := s.claim(kindCPUGroup, root); err != nil {
		return err
	}
	for i, n := range s.layout.nodes {
		g, err := tc.NewGroup(fmt.Sprintf("%s/%d", root, i+1), s.layout.nodeLimit(n.Cores))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		s.nodeGroups = append(s.nodeGroups, g)
	}
	for k, r := range s.layout.replicas {
		g, err := tc.NewGroup(fmt.Sprintf("%s/%d/%d", root, r.node+1, k+1), s.layout.limit(r))
		if err != nil {
			return fmt.Errorf("replica %s: %w", r.Name, err)
		}
		s.groups = append(s.groups, g)
	}
	return nil
}

// nodeLimit is the quota of a node's group, in the period of the replicas'
// quotas: in another one the same number of cores may be rounded below theirs,
// which cgroup v1 refuses. Few cores need a period in which they are a quota.
func (l layout) nodeLimit(cores float64) tc.CPULimit {
	limit := tc.CPULimit{Cores: cores, Period: l.plan.App.Server.Period.Std()}
	if cores*float64(limit.Period) < float64(leastQuota) {
		limit.Period = 0
	}
	return limit
}

// limit is the quota of a replica's group. cgroup v1 takes none above that of
// the group around it.
func (l layout) limit(r replicaLayout) tc.CPULimit {
	server := l.plan.App.Server
	if server.LimitCores == 0 || r.Component == testbed.GatewayComponent {
		return tc.CPULimit{}
	}
	return tc.CPULimit{
		Cores:  min(server.LimitCores, l.nodes[r.node].Cores),
		Period: server.Period.Std(), Burst: server.Burst.Std(),
	}
}

// makeNamespaces creates those of the bridge, the load generator and the
// nodes.
func (s *session) makeNamespaces(ctx context.Context) error {
	create := func(name string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.claim(kindNamespace, name); err != nil {
			return err
		}
		return makeNamespace(name)
	}
	if err := create(s.bridge); err != nil {
		return err
	}
	if err := makeBridge(s.bridge, controlAddr); err != nil {
		return err
	}
	if err := create(s.client); err != nil {
		return err
	}
	if err := plug(s.bridge, s.client, "client", []netip.Addr{clientAddr}); err != nil {
		return err
	}
	for i, n := range s.layout.nodes {
		if err := create(s.nodes[i]); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		addrs := append([]netip.Addr{n.addr}, n.addrs...)
		if err := plug(s.bridge, s.nodes[i], fmt.Sprintf("node%d", i+1), addrs); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// shapeLinks puts the delays into force at every node and the load generator.
func (s *session) shapeLinks(ctx context.Context) error {
	method := tc.Auto
	if s.layout.shapesItself() {
		method = tc.NFQueue
	}
	shape := func(namespace string, links map[netip.Addr]tc.Link) error {
		if len(links) == 0 {
			return nil
		}
		shaper, err := tc.NewShaper(ctx, tc.Options{NS: namespace, Method: method, Seed: s.layout.plan.Seed + uint64(len(s.shapers))})
		if err != nil {
			return err
		}
		s.shapers = append(s.shapers, shaper)
		return shaper.Apply(ctx, links)
	}
	for i, n := range s.layout.nodes {
		if err := shape(s.nodes[i], s.layout.linksOf(i)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err := shape(s.client, s.layout.clientLinks()); err != nil {
		return fmt.Errorf("load generator: %w", err)
	}
	return nil
}

func (s *session) serveXDS(context.Context) error {
	addresses := map[string]netip.AddrPort{}
	for _, r := range s.layout.replicas {
		addresses[r.Name] = netip.AddrPortFrom(r.addr, grpcPort)
	}
	listener, err := listenIn(s.bridge, netip.AddrPortFrom(controlAddr, xdsPort))
	if err != nil {
		return err
	}
	s.routes = xds.New(xds.Options{
		Addresses: addresses, Topology: s.layout.topology,
		NewConnectionPerRequest: s.layout.plan.Network.Connections == 0,
	})
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		s.servedErr = s.routes.Serve(listener)
	}()
	return nil
}

func (s *session) launchReplicas(ctx context.Context) error {
	for k, r := range s.layout.replicas {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.launchReplica(k, r); err != nil {
			return fmt.Errorf("replica %s: %w", r.Name, err)
		}
	}
	return nil
}

func (s *session) launchReplica(k int, r replicaLayout) error {
	gateway := r.Component == testbed.GatewayComponent
	port := uint16(grpcPort)
	if gateway {
		port = gatewayPort
	}
	config, err := json.Marshal(service.Config{
		Replica: r.Name, Component: r.Component, Node: r.Node, App: s.layout.plan.App,
		Listen:       netip.AddrPortFrom(r.addr, port).String(),
		Metrics:      netip.AddrPortFrom(r.addr, metricsPort).String(),
		Slowness:     s.layout.nodes[r.node].Slowness,
		Connections:  s.layout.plan.Network.Connections,
		ProxyThreads: s.layout.plan.Network.ProxyThreads,
		Gateway:      gateway, BehindGateway: s.layout.plan.Entry.Gateway != "",
	})
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	name := fmt.Sprintf("replica%d", k+1)
	path := filepath.Join(s.folder, name+".json")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return err
	}
	bootstrap, err := xds.Bootstrap(netip.AddrPortFrom(controlAddr, xdsPort).String(), r.Name)
	if err != nil {
		return err
	}
	env := []string{xds.BootstrapEnv + "=" + string(bootstrap)}
	p, err := launch(s.nodes[r.node], s.folder, name, s.groups[k], env, s.program, "serve", "--config", path)
	if err != nil {
		return err
	}
	p.name = r.Name
	s.processes = append(s.processes, p)
	return nil
}

// awaitReplicas waits until every replica shows its metrics.
func (s *session) awaitReplicas(ctx context.Context) error {
	waiting, crashed := context.WithCancelCause(ctx)
	defer crashed(nil)
	defer watch(s.processes, func(err error) { crashed(err) })()
	missing := s.layout.replicas
	for {
		counters := s.scraper.read(waiting, missing)
		missing = slices.DeleteFunc(slices.Clone(missing), func(r replicaLayout) bool {
			_, here := counters.of[r.Name]
			return here
		})
		if len(missing) == 0 {
			return nil
		}
		if err := pause(waiting, 20*time.Millisecond); err != nil {
			var names []string
			for _, r := range missing {
				names = append(names, r.Name)
			}
			return fmt.Errorf("no metrics yet of %s: %w", strings.Join(names, ", "), err)
		}
	}
}

// pause waits, or returns why it must not.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
