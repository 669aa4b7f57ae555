package tc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// kernelShaper lets netem below htb hold what leaves one namespace.
type kernelShaper struct {
	o Options

	mu      sync.Mutex
	placed  map[netip.Addr]*egressOn
	devices map[int]bool // that have our root
	closed  bool
}

// egressOn is an egress on the device through which its peer is reached.
type egressOn struct {
	egress
	device int
}

func newKernelShaper(o Options) *kernelShaper {
	return &kernelShaper{o: o, placed: map[netip.Addr]*egressOn{}, devices: map[int]bool{}}
}

// Apply implements Shaper.
func (k *kernelShaper) Apply(_ context.Context, links map[netip.Addr]Link) error {
	if err := CheckLinks(links); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return os.ErrClosed
	}
	return InNamespace(k.o.NS, func() error {
		for _, peer := range sortedAddrs(links) {
			if err := k.set(peer, links[peer]); err != nil {
				return fmt.Errorf("link to %s: %w", peer, err)
			}
		}
		for peer := range k.placed {
			if _, ok := links[peer]; ok {
				continue
			}
			// A class that goes drops what it holds, so it stays, without effect.
			if err := k.set(peer, Link{}); err != nil {
				return fmt.Errorf("former link to %s: %w", peer, err)
			}
		}
		return nil
	})
}

// set makes or changes what shapes the packets to one peer.
func (k *kernelShaper) set(peer netip.Addr, link Link) error {
	e := k.placed[peer]
	isNew := e == nil
	if isNew {
		device, err := k.deviceTo(peer)
		if err != nil {
			return err
		}
		minor := uint16(len(k.placed) + 1)
		if minor >= rootHandle {
			return fmt.Errorf("found more than %d peers", rootHandle-1)
		}
		e = &egressOn{egress{peer: peer, minor: minor, seed: k.o.Seed + uint64(minor)}, device}
	}
	e.link = link
	e.delay = k.o.delay(link)
	e.limit = k.o.queueLength(map[netip.Addr]Link{peer: link})
	steps := []step{{"htb class", e.setClass(e.device)}, {"netem", e.setNetem(e.device)}}
	if isNew {
		steps = append(steps, step{"u32 filter", e.addFilter(e.device)})
	}
	if err := execute(steps...); err != nil {
		return err
	}
	k.placed[peer] = e
	return nil
}

// deviceTo finds the device that packets to peer leave by, and gives it our root.
func (k *kernelShaper) deviceTo(peer netip.Addr) (int, error) {
	routes, err := netlink.RouteGet(peer.AsSlice())
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("no route (%d): %w", len(routes), err)
	}
	device := routes[0].LinkIndex
	if k.devices[device] {
		return device, nil
	}
	if err := removeRoot(device); err != nil {
		return 0, err
	}
	if err := execute(step{"htb", addRoot(device)}); err != nil {
		return 0, err
	}
	k.devices[device] = true
	return device, nil
}

// Stats implements Shaper. The kernel counts a packet lost on purpose and one
// without room alike: on a link with loss all count as lost, on one with a rate
// as overflown.
func (k *kernelShaper) Stats() (stats Stats, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return stats, os.ErrClosed
	}
	links, found := map[uint32]Link{}, 0
	for _, e := range k.placed {
		links[e.class()] = e.link
	}
	err = InNamespace(k.o.NS, func() error {
		qdiscs, err := netlink.QdiscList(nil)
		if err != nil {
			return fmt.Errorf("counters of netem: %w", err)
		}
		for _, q := range qdiscs {
			a := q.Attrs()
			link, ours := links[a.Parent]
			if !ours || !k.devices[a.LinkIndex] || a.Statistics == nil {
				continue
			}
			found++
			stats.Packets += uint64(a.Statistics.Basic.Packets + a.Statistics.Queue.Drops)
			switch drops := uint64(a.Statistics.Queue.Drops); {
			case link.Loss > 0:
				stats.Lost += drops
			case link.RateBits > 0:
				stats.Overflown += drops
			default:
				stats.Dropped += drops
			}
		}
		return nil
	})
	if err == nil && found != len(k.placed) {
		err = fmt.Errorf("found %d netem qdiscs of ours, expected %d: someone removed them", found, len(k.placed))
	}
	return stats, err
}

// Close implements Shaper. The kernel drops what it still holds.
func (k *kernelShaper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return os.ErrClosed
	}
	k.closed = true
	return InNamespace(k.o.NS, func() error {
		var faults []error
		for device := range k.devices {
			faults = append(faults, removeRoot(device))
		}
		return errors.Join(faults...)
	})
}

// removeRoot removes our root, with all below it, from a device of the
// thread's namespace. It fails if the root is someone else's, and does nothing
// if it is the one that the kernel gave the device.
func removeRoot(device int) error {
	qdiscs, err := netlink.QdiscList(nil)
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		a := q.Attrs()
		if a.LinkIndex != device || a.Parent != netlink.HANDLE_ROOT || a.Handle == 0 {
			continue
		}
		if a.Handle != netlink.MakeHandle(rootHandle, 0) {
			return fmt.Errorf("device %d has a qdisc %s %s that is not ours; expected none", device, q.Type(), netlink.HandleStr(a.Handle))
		}
		return execute(step{"remove htb", deleteRoot(device)})
	}
	return nil
}

// clearRoots removes our roots from all devices of the thread's namespace.
func clearRoots() error {
	qdiscs, err := netlink.QdiscList(nil)
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Handle == netlink.MakeHandle(rootHandle, 0) {
			if err := execute(step{"remove htb", deleteRoot(a.LinkIndex)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// probeNetem does to lo of a scratch namespace what Apply does to a device.
func probeNetem() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	device := lo.Attrs().Index
	e := egress{peer: netip.AddrFrom4([4]byte{127, 0, 0, 2}), minor: 1, limit: 1}
	return execute(step{"htb", addRoot(device)}, step{"htb class", e.setClass(device)},
		step{"netem", e.setNetem(device)}, step{"u32 filter", e.addFilter(device)})
}

// step is a named request to the kernel.
type step struct {
	name    string
	request *nl.NetlinkRequest
}

// execute takes steps up to the first that fails. That the kernel does not
// know a kind, it says by ENOENT.
func execute(steps ...step) error {
	for _, s := range steps {
		if _, err := s.request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
			return unsupported(fmt.Errorf("%s: %w", s.name, err), unix.ENOENT, unix.EOPNOTSUPP)
		}
	}
	return nil
}
