package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"heartbed/heart/xds"
	"heartbed/tc"
	"heartbed/testbed"
	"heartbed/testbed/live"
	"heartbed/workloads/service"
)

// start stands a run up. Whatever fails, what was made until then is undone.
func start(ctx context.Context, o Options, l live.Layout) (testbed.Session, error) {
	if err := errors.Join(isRoot(), CheckClean(o.journals())); err != nil {
		return nil, err
	}
	s, err := newSession(o, l)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	slowest, longest, err := live.RunStages(ctx, []live.Stage{
		{Name: "create the folder", Limit: 10 * time.Second, Do: s.makeFolder},
		{Name: "find or build the workload program", Limit: 10 * time.Minute, Do: s.findProgram},
		{Name: "create the CPU groups", Limit: 10 * time.Second, Do: s.makeGroups},
		{Name: "create the namespaces and links", Limit: 30 * time.Second, Do: s.makeNamespaces},
		{Name: "shape the links", Limit: 30 * time.Second, Do: s.shapeLinks},
		{Name: "measure the round-trip times", Limit: 2 * time.Minute, Do: s.verifyRoundTrips},
		{Name: "measure the CPU quotas", Limit: time.Minute, Do: s.verifyQuotas},
		{Name: "serve xDS", Limit: 10 * time.Second, Do: s.serveXDS},
		{Name: "start the replicas", Limit: time.Minute, Do: s.launchReplicas},
		{Name: "wait for the replicas", Limit: time.Minute, Do: s.awaitReplicas},
	}, o.OnStage)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Notes = append(s.Notes, fmt.Sprintf("set-up: %d nodes and %d processes stood after %.1f s, of which to %s %.1f s",
		len(l.Nodes), len(l.Replicas), time.Since(began).Seconds(), slowest, longest.Seconds()))
	return s, nil
}

// newSession opens the journal of a new run.
func newSession(o Options, l live.Layout) (*session, error) {
	j, run, err := live.NewRun(o.journals())
	if err != nil {
		return nil, err
	}
	s := &session{
		Session: live.Session{Layout: l}, options: o, run: run, journal: j,
		// Beside the journal, so that a boot empties both or neither.
		folder: filepath.Join(j.Folder(), folderPrefix+run),
		bridge: namespacePrefix + run + "-switch", client: namespacePrefix + run + "-client",
	}
	for i := range l.Nodes {
		s.nodes = append(s.nodes, fmt.Sprintf("%s%s-%d", namespacePrefix, run, i+1))
	}
	s.Scraper, s.Dial = live.NewScraper(l.Replicas, l.Plan.Control, live.DialIn(s.bridge)), live.DialIn(s.client)
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
func (s *session) claim(k live.Kind, name string) error {
	there, err := exists(k, name)
	if err != nil {
		return err
	}
	if there {
		return fmt.Errorf("%s %s is there already and not of this run", k, name)
	}
	return s.journal.Add(live.Entry{Kind: k, Name: name})
}

func (s *session) findProgram(ctx context.Context) (err error) {
	s.program, err = live.Workload(ctx, s.options.Workload, s.makeBuildFolder)
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
	for i, n := range s.Layout.Nodes {
		g, err := tc.NewGroup(fmt.Sprintf("%s/%d", root, i+1), s.Layout.NodeLimit(n.Cores))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		s.NodeGroups = append(s.NodeGroups, g)
	}
	for k, r := range s.Layout.Replicas {
		g, err := tc.NewGroup(fmt.Sprintf("%s/%d/%d", root, r.On+1, k+1), s.Layout.Limit(r))
		if err != nil {
			return fmt.Errorf("replica %s: %w", r.Name, err)
		}
		s.Groups = append(s.Groups, g)
	}
	return nil
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
	for i, n := range s.Layout.Nodes {
		if err := create(s.nodes[i]); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		addrs := append([]netip.Addr{n.Addr}, n.Addrs...)
		if err := plug(s.bridge, s.nodes[i], fmt.Sprintf("node%d", i+1), addrs); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// shapeLinks puts the delays into force at every node and the load generator.
func (s *session) shapeLinks(ctx context.Context) error {
	method := tc.Auto
	if s.Layout.ShapesItself() {
		method = tc.NFQueue
	}
	shape := func(namespace string, links map[netip.Addr]tc.Link) error {
		if len(links) == 0 {
			return nil
		}
		shaper, err := tc.NewShaper(ctx, tc.Options{NS: namespace, Method: method, Seed: s.Layout.Plan.Seed + uint64(len(s.Shapers))})
		if err != nil {
			return err
		}
		s.Shapers = append(s.Shapers, shaper)
		return shaper.Apply(ctx, links)
	}
	for i, n := range s.Layout.Nodes {
		if err := shape(s.nodes[i], s.Layout.LinksOf(i)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	if err := shape(s.client, s.Layout.ClientLinks()); err != nil {
		return fmt.Errorf("load generator: %w", err)
	}
	return nil
}

func (s *session) serveXDS(context.Context) error {
	listener, err := live.ListenIn(s.bridge, netip.AddrPortFrom(controlAddr, live.XDSPort))
	if err != nil {
		return err
	}
	s.ServeXDS(listener)
	return nil
}

func (s *session) launchReplicas(ctx context.Context) error {
	for k, r := range s.Layout.Replicas {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.launchReplica(k, r); err != nil {
			return fmt.Errorf("replica %s: %w", r.Name, err)
		}
	}
	return nil
}

func (s *session) launchReplica(k int, r live.Replica) error {
	gateway := r.Component == testbed.GatewayComponent
	port := uint16(live.GRPCPort)
	if gateway {
		port = live.GatewayPort
	}
	config, err := json.Marshal(service.Config{
		Replica: r.Name, Component: r.Component, Node: r.Node, App: s.Layout.Plan.App,
		Listen:       netip.AddrPortFrom(r.Addr, port).String(),
		Metrics:      netip.AddrPortFrom(r.Addr, live.MetricsPort).String(),
		Slowness:     s.Layout.Nodes[r.On].Slowness,
		Connections:  s.Layout.Plan.Network.Connections,
		ProxyThreads: s.Layout.Plan.Network.ProxyThreads,
		Gateway:      gateway, BehindGateway: s.Layout.Plan.Entry.Gateway != "",
	})
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	name := fmt.Sprintf("replica%d", k+1)
	path := filepath.Join(s.folder, name+".json")
	if err := os.WriteFile(path, config, 0o644); err != nil {
		return err
	}
	bootstrap, err := xds.Bootstrap(netip.AddrPortFrom(controlAddr, live.XDSPort).String(), r.Name)
	if err != nil {
		return err
	}
	env := []string{xds.BootstrapEnv + "=" + string(bootstrap)}
	p, err := launch(s.nodes[r.On], s.folder, name, s.Groups[k], env, s.program, "serve", "--config", path)
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
	return s.AwaitReplicas(waiting)
}
