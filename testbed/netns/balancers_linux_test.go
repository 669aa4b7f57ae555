package netns

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/heart"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// established counts the TCP connections to a replica in the namespace of a
// process.
func established(t *testing.T, pid int, to netip.Addr) (n int) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/tcp", pid))
	require.NoError(t, err)
	defer f.Close()
	ip := to.As4()
	remote := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), live.GRPCPort)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// number, local, remote, state: 01 is established
		if field := strings.Fields(lines.Text()); field[2] == remote && field[3] == "01" {
			n++
		}
	}
	return n
}

// Under least request a caller has as many channels as its proxy has threads,
// each with counters and connections of its own; under the other balancers one.
// Kept connections are for per-connection balancing only.
func TestProxyThreadsAreChannels(t *testing.T) {
	p := testbedtest.Plan()
	p.Network.ProxyThreads, p.Network.Connections = 3, 5
	s := begin(t, liveBackend(t), p, testbedtest.Table(1, 1))
	a1, b2 := s.processes[1], s.Layout.Replicas[4]
	require.Equal(t, []string{"a1", "b2"}, []string{s.Layout.Replicas[1].Name, b2.Name})
	count := func() int { return established(t, a1.cmd.Process.Pid, b2.Addr) }
	require.Eventually(t, func() bool { return count() == 1 }, 5*time.Second, 10*time.Millisecond)

	table := testbedtest.Table(1, 1)
	table.Routes[1].Balancer = heart.LeastRequest
	require.NoError(t, s.Route(t.Context(), table))
	require.Eventually(t, func() bool { return count() == 3 }, 5*time.Second, 10*time.Millisecond)
	_, err := s.Run(t.Context(), func(context.Context) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 3, count())
}
