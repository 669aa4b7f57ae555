package tc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"heartbed/testbed/testbedtest"
)

// pair is two scratch namespaces joined by a veth pair.
type pair struct {
	ns   [2]string
	addr [2]netip.Addr
}

var pairs atomic.Int64

func newPair(t *testing.T) pair {
	t.Helper()
	testbedtest.Require(t, "netns", Probe(t.Context()).NFQueue)
	n := pairs.Add(1)
	p := pair{addr: [2]netip.Addr{netip.AddrFrom4([4]byte{10, 231, byte(n), 1}), netip.AddrFrom4([4]byte{10, 231, byte(n), 2})}}
	for i := range p.ns {
		p.ns[i] = fmt.Sprintf("hbtc-%d-%d-%d", os.Getpid(), n, i)
		name := p.ns[i]
		require.NoError(t, onThread(func() error {
			h, err := netns.NewNamed(name)
			if err != nil {
				return err
			}
			return h.Close()
		}, func() error { return up("lo", "") }))
		t.Cleanup(func() { require.NoError(t, netns.DeleteNamed(name)) })
	}
	peer, err := netns.GetFromName(p.ns[1])
	require.NoError(t, err)
	defer peer.Close()
	require.NoError(t, inNamespace(p.ns[0], func() error {
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(peer)})
		return errors.Join(err, up("eth0", p.addr[0].String()+"/24"))
	}))
	require.NoError(t, inNamespace(p.ns[1], func() error { return up("eth0", p.addr[1].String()+"/24") }))
	require.Eventually(t, func() bool { // the kernel takes up to a second to see the carrier
		times := p.roundTrips(t, 1, 0, 100*time.Millisecond)
		return len(times) == 1 && times[0] < 10*time.Millisecond
	}, 5*time.Second, time.Millisecond)
	return p
}

// up sets an interface of the thread's namespace up, with an address if there is one.
func up(name, addr string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if addr != "" {
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// shape makes a shaper on each side, with the link to the other.
func (p pair) shape(t *testing.T, link Link, o Options) [2]Shaper {
	t.Helper()
	var shapers [2]Shaper
	for i := range shapers {
		o.NS, o.Method = p.ns[i], NFQueue
		s, err := NewShaper(t.Context(), o)
		require.NoError(t, err)
		t.Cleanup(func() {
			if err := s.Close(); !errors.Is(err, os.ErrClosed) {
				require.NoError(t, err)
			}
		})
		require.NoError(t, s.Apply(context.Background(), map[netip.Addr]Link{p.addr[1-i]: link}))
		shapers[i] = s
	}
	return shapers
}

// udp opens a socket in one of the namespaces.
func (p pair) udp(t *testing.T, side int) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	require.NoError(t, inNamespace(p.ns[side], func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: p.addr[side].AsSlice()})
		return err
	}))
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetReadBuffer(8<<20))
	return c
}

func port(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// roundTrips sends n datagrams, one every gap, which the other side sends
// back, and gives the times of those that came back within wait of the last.
func (p pair) roundTrips(t *testing.T, n int, gap, wait time.Duration) []time.Duration {
	t.Helper()
	a, b := p.udp(t, 0), p.udp(t, 1)
	go func() {
		buf := make([]byte, 64)
		for {
			k, from, err := b.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if _, err := b.WriteToUDPAddrPort(buf[:k], from); err != nil {
				return
			}
		}
	}()
	start := time.Now()
	go func() {
		for i := range n {
			time.Sleep(time.Until(start.Add(time.Duration(i) * gap)))
			sent := fmt.Appendf(nil, "%d", time.Since(start))
			if _, err := a.WriteToUDPAddrPort(sent, port(b)); err != nil {
				return
			}
		}
	}()
	var times []time.Duration
	buf := make([]byte, 64)
	require.NoError(t, a.SetReadDeadline(start.Add(time.Duration(n)*gap+wait)))
	for len(times) < n {
		k, err := a.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		require.NoError(t, err)
		var sent int64
		_, err = fmt.Sscan(string(buf[:k]), &sent)
		require.NoError(t, err)
		times = append(times, time.Since(start)-time.Duration(sent))
	}
	return times
}
