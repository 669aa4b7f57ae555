package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"heartbed/tc"
	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

// childEnv names the test that the test program runs again, as a process for
// which the host is another one.
const childEnv = "HEARTBED_TEST_CHILD"

// elsewhere runs the test again in a child process that attr describes. It
// returns true in the child, where the test goes on.
func elsewhere(t *testing.T, attr *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		return true
	}
	// By its link, which needs no right to read the folder it lies in.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name())
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

// Without root the backend says so before it touches anything, also to a start
// that did not ask first.
func TestNoRoot(t *testing.T) {
	if os.Geteuid() == 0 && !elsewhere(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}) {
		return
	}
	b := Backend{Options{Journals: t.TempDir()}}
	_, err := b.Start(t.Context(), testbedtest.Plan())
	for _, err := range []error{b.Check(t.Context()), err} {
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "network namespaces need root: run it with sudo")
	}
	left, err := os.ReadDir(b.Options.Journals)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A kernel without NFQUEUE and netem cannot delay packets; the check says what
// is missing rather than let nodes be at no distance.
func TestNoNFQUEUE(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	if !elsewhere(t, nil) {
		return
	}
	require.NoError(t, withoutNetfilter())
	for _, f := range Facts(t.Context()) {
		if f.Name == "nfqueue" {
			require.Equal(t, "missing", f.State, f.Note)
		}
	}
	err := Backend{}.Check(t.Context())
	if tc.Probe(t.Context()).Netem == nil {
		require.NoError(t, err, "the kernel's own method does")
		return
	}
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "no way to delay packets")
	require.ErrorContains(t, err, "netfilter socket: protocol not supported")
}

// withoutNetfilter makes the kernel answer this process as one that was built
// without netfilter's netlink does.
func withoutNetfilter() error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	answer := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	// struct seccomp_data: the number of the call at 0, its arguments from 16.
	filter := []unix.SockFilter{
		load(0), unless(unix.SYS_SOCKET, 5),
		load(16), unless(unix.AF_NETLINK, 3),
		load(32), unless(unix.NETLINK_NETFILTER, 1),
		answer(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)),
		answer(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("install filter: %w", errno)
	}
	return nil
}

// A host that is in the subnet of the testbed itself, with all its ports
// taken, neither disturbs a run nor is disturbed.
func TestHostInTheSameSubnet(t *testing.T) {
	b := liveBackend(t)
	if !elsewhere(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}) {
		return
	}
	taken := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	require.NoError(t, netlink.LinkAdd(taken))
	subnet := &net.IPNet{IP: controlAddr.AsSlice(), Mask: net.CIDRMask(subnetBits, 32)}
	require.NoError(t, netlink.AddrAdd(taken, &netlink.Addr{IPNet: subnet}))
	require.NoError(t, netlink.LinkSetUp(taken))
	var listeners []*net.TCPListener
	for _, port := range []uint16{live.GRPCPort, live.GatewayPort, live.MetricsPort, live.XDSPort} {
		l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(controlAddr, port)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		listeners = append(listeners, l)
	}
	s := begin(t, b, testbedtest.Plan(), testbedtest.Table(1, 1))
	m, err := s.Run(t.Context(), nothing)
	require.NoError(t, err)
	require.Equal(t, m.Offered, m.Answered)
	for _, l := range listeners {
		raw, err := l.SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			_, _, err := unix.Accept(int(fd))
			require.ErrorIs(t, err, unix.EAGAIN, "nobody connects to the host")
		}))
	}
}

// After a boot the folder of namespaces is no mount yet. The first `ip netns
// add` of somebody else, in the middle of a run, finds that it is one now and
// leaves it alone: the run's namespaces stay within reach.
func TestSomebodyElseAddsTheFirstNamespace(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	if !elsewhere(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}) {
		return
	}
	require.NoError(t, unix.Mount("", "/", "none", unix.MS_PRIVATE|unix.MS_REC, ""))
	require.NoError(t, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""), "a /run as after a boot")
	names := []string{"hb-0badcafe-1", "hb-0badcafe-2"}
	require.NoError(t, makeNamespace(names[0]))
	// What ip does before it adds one; without a mount it is EINVAL, and it
	// mounts the folder on itself.
	require.NoError(t, unix.Mount("", namespaceFolder, "none", unix.MS_SHARED|unix.MS_REC, ""))
	require.NoError(t, makeNamespace(names[1]))
	for _, name := range names {
		require.NoError(t, removeNamespace(t.Context(), name))
		require.NoFileExists(t, namespacePath(name))
	}
}
