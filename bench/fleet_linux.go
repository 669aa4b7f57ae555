package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"heartbed/heart"
	"heartbed/heart/policy"
	"heartbed/heart/xds"
	"heartbed/testbed"
	"heartbed/workloads"
	"heartbed/workloads/service"
)

// fleet is the chain of five in LAN with 25 replicas and a gateway, each a
// process with an address of its own on loopback, routed in turn over xDS. The
// components do no work but call on.
type fleet struct {
	program   string
	url       string // of the gateway
	processes []*serviceProcess
	callers   map[string]bool // components that are asked and ask another: a hop a request each
	routes    *xds.Server
	serving   chan error
}

type serviceProcess struct {
	cmd    *exec.Cmd
	config service.Config
	log    bytes.Buffer
}

// startFleet starts all and returns when they are ready and have their routes.
// The fleet is to be stopped even after an error.
func startFleet(ctx context.Context, dir, program string) (*fleet, error) {
	f := &fleet{program: program, callers: map[string]bool{}}
	plan, err := lanPlan("sim")
	if err != nil {
		return f, err
	}
	topology := plan.Topology()
	address := func(i int, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, 0, byte(i + 1)}), port)
	}
	addresses := map[string]netip.AddrPort{}
	for i, r := range topology.Replicas {
		addresses[r.Name] = address(i, 50051)
	}
	at, err := f.serveRoutes(ctx, topology, addresses)
	if err != nil {
		return f, err
	}
	app := callsOnly(plan.App)
	for _, call := range app.Calls() {
		f.callers[call.From] = true
	}
	for i, r := range topology.Replicas {
		c := service.Config{
			Replica: r.Name, Component: r.Component, Node: r.Node, App: app,
			Listen: addresses[r.Name].String(), Metrics: address(i, 9100).String(), Gateway: r.Component == testbed.GatewayComponent,
		}
		if c.Gateway {
			f.url = "http://" + c.Listen + "/"
		}
		if err := f.launch(dir, at, c); err != nil {
			return f, fmt.Errorf("replica %s: %w", r.Name, err)
		}
	}
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, p := range f.processes {
		if err := p.ready(within); err != nil {
			return f, err
		}
	}
	_, err = f.routes.WaitAcked(within)
	return f, err
}

// callsOnly is the application without its work.
func callsOnly(app workloads.Application) workloads.Application {
	var components []workloads.Component
	for _, c := range app.Components {
		var steps []workloads.Step
		for _, s := range c.Steps {
			if len(s.Call) > 0 {
				steps = append(steps, s)
			}
		}
		if c.Steps = steps; len(steps) == 0 {
			c.Steps = []workloads.Step{{CPUMs: 0.001}}
		}
		components = append(components, c)
	}
	app.Components = components
	return app
}

// serveRoutes gives every caller the replicas of its callee in turn.
func (f *fleet) serveRoutes(ctx context.Context, topology heart.Topology, addresses map[string]netip.AddrPort) (at string, err error) {
	p, err := policy.New("roundrobin", nil)
	if err != nil {
		return "", err
	}
	decision, err := p.Allocate(heart.Observation{Topology: topology}, nil)
	if err != nil {
		return "", err
	}
	f.routes = xds.New(xds.Options{Addresses: addresses, Topology: topology})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	f.serving = make(chan error, 1)
	go func() { f.serving <- f.routes.Serve(l) }()
	return l.Addr().String(), f.routes.Route(ctx, decision.Table)
}

func (f *fleet) launch(dir, routes string, c service.Config) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, c.Replica+".json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	bootstrap, err := xds.Bootstrap(routes, c.Replica)
	if err != nil {
		return err
	}
	p := &serviceProcess{cmd: exec.Command(f.program, "serve", "--config", file), config: c}
	p.cmd.Env = append(os.Environ(), xds.BootstrapEnv+"="+string(bootstrap))
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	f.processes = append(f.processes, p)
	return nil
}

// ready waits until the process says that it takes requests.
func (p *serviceProcess) ready(ctx context.Context) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.config.Metrics+"/ready", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %v: %w", p.cmd.Args, err)
		}
	}
}

// stop ends the processes; what they said is shown if they did not end well.
func (f *fleet) stop() {
	for _, p := range f.processes {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that is gone says so below
	}
	for _, p := range f.processes {
		if err := p.cmd.Wait(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v: %s\n", p.cmd.Args, err, p.log.Bytes())
		}
	}
	if f.routes != nil {
		f.routes.Stop()
	}
	if f.serving != nil {
		<-f.serving
	}
}
