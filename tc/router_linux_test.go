package tc_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/tc"
	"heartbed/testbed/testbedtest"
)

// router makes namespaces as on a Kubernetes node: a router with an uplink to
// a far machine and two machines behind it. It gives their names.
func router(t *testing.T) (node, far, one, two string) {
	t.Helper()
	testbedtest.Require(t, "netns", tc.Probe(t.Context()).NFQueue)
	names := make([]string, 4)
	for i := range names {
		names[i] = fmt.Sprintf("hbtest-%d-%d", os.Getpid(), i)
		ip(t, "netns add "+names[i])
		t.Cleanup(func() { ip(t, "netns del "+names[i]) })
		ip(t, "-n "+names[i]+" link set lo up")
	}
	for i, link := range []string{"eth0", "pod1", "pod2"} {
		there := names[i+1]
		ip(t, fmt.Sprintf("-n %s link add %s type veth peer name eth0 netns %s", names[0], link, there))
		ip(t, fmt.Sprintf("-n %s addr add 10.9.%d.1/24 dev %s", names[0], i, link))
		ip(t, fmt.Sprintf("-n %s addr add 10.9.%d.2/24 dev eth0", there, i))
		ip(t, fmt.Sprintf("-n %s link set %s up", names[0], link))
		ip(t, fmt.Sprintf("-n %s link set eth0 up", there))
		ip(t, fmt.Sprintf("-n %s route add default via 10.9.%d.1", there, i))
	}
	require.NoError(t, tc.InNamespace(names[0], func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	}))
	return names[0], names[1], names[2], names[3]
}

func ip(t *testing.T, args string) {
	t.Helper()
	said, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", args, said)
}

// opens measures how long a connection takes to open, one round trip.
func opens(t *testing.T, from, to, addr string) time.Duration {
	t.Helper()
	var l net.Listener
	require.NoError(t, tc.InNamespace(to, func() (err error) { l, err = net.Listen("tcp4", addr+":0"); return err }))
	defer l.Close()
	best := time.Hour
	for range 5 {
		began := time.Now()
		require.NoError(t, tc.InNamespace(from, func() error {
			c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
			if err != nil {
				return err
			}
			best = min(best, time.Since(began))
			return c.Close()
		}))
	}
	return best
}

// A router delays what it forwards to the machines behind it, once: not what
// they send away, and not what is for itself.
func TestRouterShapesForTheMachinesBehindIt(t *testing.T) {
	node, far, one, two := router(t)
	s, err := tc.NewShaper(t.Context(), tc.Options{NS: node, Uplink: "eth0"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Apply(t.Context(), map[netip.Addr]tc.Link{
		netip.MustParseAddr("10.9.0.2"): {RTT: 100 * time.Millisecond},
		netip.MustParseAddr("10.9.1.2"): {RTT: 40 * time.Millisecond},
		netip.MustParseAddr("10.9.2.2"): {RTT: 40 * time.Millisecond},
	}))
	const slack = 8e-3
	require.InDelta(t, 0.050, opens(t, one, far, "10.9.0.2").Seconds(), slack, "the far side would add the other half")
	require.InDelta(t, 0.050, opens(t, far, one, "10.9.1.2").Seconds(), slack)
	require.InDelta(t, 0.040, opens(t, one, two, "10.9.2.2").Seconds(), slack, "both ways between two machines behind it")
	require.InDelta(t, 0, opens(t, far, node, "10.9.0.1").Seconds(), slack, "the router itself is no part of it")
	stats, err := s.Stats()
	require.NoError(t, err)
	require.Positive(t, stats.Packets)
}
