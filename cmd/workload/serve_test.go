package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"heartbed/cmd/internal/cli"
	"heartbed/heart"
	"heartbed/heart/xds"
	"heartbed/workloads"
	"heartbed/workloads/service"
)

// actAsWorkload turns the test binary into the program.
const actAsWorkload = "HEARTBED_TEST_WORKLOAD"

func TestMain(m *testing.M) {
	if os.Getenv(actAsWorkload) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// process is a running program that is ready.
type process struct {
	*exec.Cmd
	metrics string
}

// freeAddress is one that nobody listens on now.
func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// serve starts a replica as a process with routes from the server at address.
func serve(t *testing.T, server string, cfg service.Config) process {
	cfg.Metrics = freeAddress(t)
	raw, err := json.Marshal(cfg)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "replica.json")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	bootstrap, err := xds.Bootstrap(server, cfg.Replica)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "serve", "--config", file)
	cmd.Env = append(os.Environ(), actAsWorkload+"=1", xds.BootstrapEnv+"="+string(bootstrap))
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // of a test that failed
	p := process{cmd, cfg.Metrics}
	require.Eventually(t, func() bool { return p.get("/ready") != "" }, 10*time.Second, 10*time.Millisecond)
	return p
}

// get is what the metrics port answers, "" if that is not 200.
func (p process) get(path string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.metrics + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return resp.Status + "\n" + string(body)
}

// residentMB reads the process's resident set.
func (p process) residentMB(t *testing.T) float64 {
	f, err := os.Open("/proc/" + strconv.Itoa(p.Process.Pid) + "/status")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if kb, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(kb, "kB")), 64)
			require.NoError(t, err)
			return n / 1024
		}
	}
	t.Fatal("no VmRSS line")
	return 0
}

// TestServe runs gateway -> a -> b as three processes whose routes come over
// xDS, and ends them with SIGTERM.
func TestServe(t *testing.T) {
	app := workloads.Application{
		Name: "chain", Entry: "a", Server: workloads.Server{Threads: 1},
		Components: []workloads.Component{
			{Name: "a", Replicas: 1, Steps: []workloads.Step{{CPUMs: 1}, {Call: []string{"b"}}}},
			{Name: "b", Replicas: 1, Steps: []workloads.Step{{CPUMs: 1}}},
		},
	}
	entry, addrs := freeAddress(t), map[string]netip.AddrPort{}
	for _, name := range []string{"a1", "b1"} {
		addrs[name] = netip.MustParseAddrPort(freeAddress(t))
	}
	server := routes(t, addrs)
	started := time.Now()
	processes := []process{
		serve(t, server, service.Config{Replica: "gateway", Component: "gateway", App: app, Gateway: true, Listen: entry}),
		serve(t, server, service.Config{Replica: "a1", Component: "a", App: app, Listen: addrs["a1"].String()}),
		serve(t, server, service.Config{Replica: "b1", Component: "b", App: app, Listen: addrs["b1"].String()}),
	}
	t.Logf("ready after %v", time.Since(started).Round(time.Millisecond))
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for range 20 {
		resp, err := client.Get("http://" + entry)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	}
	require.Contains(t, processes[2].get("/metrics"), `heartbed_requests_total{caller_replica="a1",code="OK",component="b",node="",replica="b1"} 20`)
	for _, p := range processes {
		t.Logf("resident: %.1f MB", p.residentMB(t))
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.Wait(), "exit code 0 after a drain")
	}
}

// routes serves the only possible routes and gives the server's address.
func routes(t *testing.T, addrs map[string]netip.AddrPort) string {
	only := func(from, to string) heart.Route {
		return heart.Route{From: from, To: to, Balancer: heart.Weighted, Shares: []heart.Share{{To: to, Weight: 1}}}
	}
	group := func(component, replica string) heart.Group {
		return heart.Group{Name: component, Component: component, Replicas: []string{replica}}
	}
	s := xds.New(xds.Options{Addresses: addrs, Topology: heart.Topology{
		Nodes: []heart.Node{{Name: "n"}}, RTT: [][]time.Duration{{0}},
		Replicas: []heart.Replica{
			{Name: "gateway", Component: "gateway", Node: "n"}, {Name: "a1", Component: "a", Node: "n"}, {Name: "b1", Component: "b", Node: "n"},
		},
		Calls: []heart.Call{{From: "gateway", To: "a"}, {From: "a", To: "b"}},
	}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ends by Stop
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	require.NoError(t, s.Route(t.Context(), heart.RoutingTable{
		Groups: []heart.Group{group("gateway", "gateway"), group("a", "a1"), group("b", "b1")},
		Routes: []heart.Route{only("gateway", "a"), only("a", "b")},
	}))
	return l.Addr().String()
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, "--config: found none"},
		{[]string{"serve", "--config", "absent.json"}, "absent.json"},
		{[]string{"serve", "--config", "absent.json", "more"}, `unknown command "more"`},
		{[]string{"probe"}, "--source: found none"},
		{[]string{"probe", "--source", "n1", "--target", "n2"}, `target: found "n2"`},
		{[]string{"probe", "--source", "n1", "--target", "n2=127.0.0.1", "--count", "0"}, "--count"},
		{[]string{"nonsense"}, `unknown command "nonsense"`},
	} {
		code, _, stderr := command(t.Context(), c.args...)
		require.Contains(t, stderr, c.want)
		require.Equal(t, cli.BadInput, code, stderr)
	}
}

func TestProbeOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	code, stdout, stderr := command(t.Context(), "probe", "--once", "--timeout", "200ms", "--source", "n1",
		"--target", "self="+l.Addr().String(), "--target", "nobody=240.0.0.1")
	require.Equal(t, cli.Failed, code, "one of the two failed")
	require.Contains(t, stderr, "probe nobody")
	var lines []measured
	for dec := json.NewDecoder(strings.NewReader(stdout)); dec.More(); {
		var m measured
		require.NoError(t, dec.Decode(&m))
		lines = append(lines, m)
	}
	require.Len(t, lines, 2)
	require.Positive(t, *lines[0].RTTMs)
	require.Equal(t, "self", lines[0].Target)
	require.Nil(t, lines[1].RTTMs)
	require.NotEmpty(t, lines[1].Error)
}
