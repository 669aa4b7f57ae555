package service

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"heartbed/tc"
	"heartbed/testbed/testbedtest"
)

// The environment variables that turn the test binary into a helper process.
const (
	quotaHelper = "HEARTBED_TEST_QUOTA"
	serveHelper = "HEARTBED_TEST_SERVE" // the Config as JSON
)

func init() {
	helpers[quotaHelper] = printQuota
	helpers[serveHelper] = serveUntilEOF
}

// group makes a control group for the test, with nested ones in its path.
func group(t *testing.T, path string, limit tc.CPULimit) *tc.Group {
	g, err := tc.NewGroup(path, limit)
	testbedtest.Require(t, "netns", err)
	t.Cleanup(func() { require.NoError(t, g.Remove()) })
	return g
}

// inGroup starts the test binary with the variable set, puts it into the
// group before it does anything, and ends it with the test.
func inGroup(t *testing.T, g *tc.Group, variable, value string) *bufio.Reader {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+value)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	})
	require.NoError(t, g.Add(cmd.Process.Pid))
	_, err = in.Write([]byte("go\n"))
	require.NoError(t, err)
	return bufio.NewReader(out)
}

// TestQuotaOfAnAncestorBinds is golang/go#81180 on the real kernel: the
// process's own group has no limit, the one above has 1.5 cores.
func TestQuotaOfAnAncestorBinds(t *testing.T) {
	path := fmt.Sprintf("service-test-%d-quota", os.Getpid())
	group(t, path, tc.CPULimit{Cores: 1.5})
	inner := group(t, path+"/pod", tc.CPULimit{})
	line, err := inGroup(t, inner, quotaHelper, "1").ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "1.5", strings.TrimSpace(line))
}

// TestQuotaMakesARequestTakeLonger gives a replica a fifth of a core: 100 ms
// of CPU time are five quotas of 20 ms, so that four periods of 100 ms begin
// while the request runs; three pass in full.
func TestQuotaMakesARequestTakeLonger(t *testing.T) {
	g := group(t, fmt.Sprintf("service-test-%d-slow", os.Getpid()), tc.CPULimit{Cores: 0.2})
	raw, err := json.Marshal(Config{Replica: "b1", Component: "b", App: chain(burns(100)), Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	addr, err := inGroup(t, g, serveHelper, string(raw)).ReadString('\n')
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:///"+strings.TrimSpace(addr), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	started := time.Now()
	require.NoError(t, call(t.Context(), conn))
	require.GreaterOrEqual(t, time.Since(started), 300*time.Millisecond)
	stats, err := g.Stats()
	require.NoError(t, err)
	require.GreaterOrEqual(t, stats.Throttled, uint64(3))
}

// printQuota is the helper process that tells which quota binds it.
func printQuota(string) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // until it is in its group
		return err
	}
	quota, err := CPUQuota()
	fmt.Println(quota)
	return err
}

// serveUntilEOF is the helper process of a replica: it prints its address and
// serves until its input ends.
func serveUntilEOF(config string) error {
	var cfg Config
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil { // until it is in its group
		return err
	}
	s, err := New(cfg)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	return s.Run(ctx)
}
