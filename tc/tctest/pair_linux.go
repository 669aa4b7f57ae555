// Package tctest makes a scratch network of two namespaces and measures the
// way between them, for tests and benchmarks of shapers.
package tctest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"heartbed/tc"
)

// Pair is two namespaces joined by a veth pair.
type Pair struct {
	NS   [2]string // names as of `ip netns`
	Addr [2]netip.Addr
}

var made atomic.Uint32

// NewPair makes a pair that no other process uses.
func NewPair() (Pair, error) {
	var p Pair
	n := made.Add(1)
	for i := range p.NS {
		p.NS[i] = fmt.Sprintf("hbtc-%d-%d-%d", os.Getpid(), n, i)
		p.Addr[i] = netip.AddrFrom4([4]byte{10, 231, byte(n), byte(i + 1)})
	}
	if err := p.set(); err != nil {
		return p, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p Pair) set() error {
	for _, name := range p.NS {
		if err := makeNamespace(name); err != nil {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
	}
	peer, err := netns.GetFromName(p.NS[1])
	if err != nil {
		return err
	}
	defer peer.Close()
	for i, name := range p.NS {
		err := tc.InNamespace(name, func() error {
			if i == 0 {
				veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device, PeerNamespace: netlink.NsFd(peer)}
				if err := netlink.LinkAdd(veth); err != nil {
					return err
				}
			}
			return up(p.Addr[i])
		})
		if err != nil {
			return fmt.Errorf("set up %s: %w", name, err)
		}
	}
	return p.awaitCarrier()
}

const device = "eth0"

func makeNamespace(name string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is left in the new namespace and ends
		h, err := netns.NewNamed(name)
		if err == nil {
			err = h.Close()
		}
		done <- err
	}()
	return <-done
}

func up(addr netip.Addr) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	ip := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(24, 32)}
	return errors.Join(netlink.AddrAdd(l, &netlink.Addr{IPNet: ip}), netlink.LinkSetUp(l))
}

// awaitCarrier waits until packets flow: the kernel takes up to a second to
// see that both ends are up.
func (p Pair) awaitCarrier() error {
	for range 100 {
		times, err := p.Ping(1, 0, 100*time.Millisecond)
		if err != nil {
			return err
		}
		if len(times) == 1 && times[0].Took < 10*time.Millisecond {
			return nil
		}
	}
	return fmt.Errorf("no packet got from %s to %s", p.NS[0], p.NS[1])
}

// Close removes the namespaces with all that is in them.
func (p Pair) Close() error {
	var faults []error
	for _, name := range p.NS {
		if err := netns.DeleteNamed(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			faults = append(faults, fmt.Errorf("remove namespace %s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

// Shape makes a shaper on each side, with this link to the other side.
func (p Pair) Shape(ctx context.Context, link tc.Link, o tc.Options) (shapers [2]tc.Shaper, err error) {
	for i := range shapers {
		o.NS = p.NS[i]
		if shapers[i], err = tc.NewShaper(ctx, o); err != nil {
			break
		}
		if err = shapers[i].Apply(ctx, map[netip.Addr]tc.Link{p.Addr[1-i]: link}); err != nil {
			break
		}
	}
	if err == nil {
		return shapers, nil
	}
	for _, s := range shapers {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return shapers, err
}
