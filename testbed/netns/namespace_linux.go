package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	namespaceFolder = "/run/netns" // where ip netns looks, too
	namespacePrefix = "hb-"
	killLimit       = 10 * time.Second
)

// namespacePath is the file that keeps a namespace alive.
func namespacePath(name string) string { return filepath.Join(namespaceFolder, name) }

// onOwnThread runs f on a thread that may change its namespace. The thread
// goes back to the namespace it came from, or ends.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- fmt.Errorf("find own namespace: %w", err)
			return
		}
		err = f()
		back := netns.Set(home)
		err = errors.Join(err, home.Close())
		if back == nil {
			runtime.UnlockOSThread() // else the runtime ends the thread with this goroutine
		}
		done <- err
	}()
	return <-done
}

// inNamespace runs f on a thread that is in the namespace: sockets that f
// opens and processes that f starts stay in it.
func inNamespace(name string, f func() error) error {
	return onOwnThread(func() error {
		target, err := netns.GetFromName(name)
		if err != nil {
			return fmt.Errorf("open namespace %s: %w", name, err)
		}
		defer target.Close()
		if err := netns.Set(target); err != nil {
			return fmt.Errorf("enter namespace %s: %w", name, err)
		}
		return f()
	})
}

// shareNamespaceFolder makes the folder of namespaces a mount of its own, as
// the first `ip netns add` after a boot does. Would that come later, during a
// run, it would put a copy of the folder with all its mounts over it, under
// which the run's own could not be reached any more. It stays so, as with ip.
func shareNamespaceFolder() error {
	if err := os.MkdirAll(namespaceFolder, 0o755); err != nil {
		return err
	}
	folder, err := os.Open(namespaceFolder)
	if err != nil {
		return err
	}
	defer folder.Close() // and unlock; ip has the same lock
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", namespaceFolder, err)
	}
	share := func() error { return unix.Mount("", namespaceFolder, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // no mount yet
		if err := unix.Mount(namespaceFolder, namespaceFolder, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s on itself: %w", namespaceFolder, err)
		}
		err = share()
	}
	if err != nil {
		return fmt.Errorf("share the mounts in %s: %w", namespaceFolder, err)
	}
	return nil
}

// makeNamespace creates a named namespace with its loopback up.
func makeNamespace(name string) error {
	if err := shareNamespaceFolder(); err != nil {
		return err
	}
	return onOwnThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
		defer ns.Close()
		return withLinks(name, func(h *netlink.Handle) error { return up(h, "lo") })
	})
}

// withLinks gives f the links of a namespace.
func withLinks(name string, f func(*netlink.Handle) error) error {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in namespace %s: %w", name, err)
	}
	defer h.Close()
	if err := f(h); err != nil {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

func up(h *netlink.Handle, link string) error {
	l, err := h.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return fmt.Errorf("link %s up: %w", link, err)
	}
	return nil
}

const (
	bridgeName = "switch"
	nodeLink   = "eth0"
)

// makeBridge creates the bridge of a run in its namespace, with an address.
func makeBridge(namespace string, addr netip.Addr) error {
	return withLinks(namespace, func(h *netlink.Handle) error {
		if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}); err != nil {
			return fmt.Errorf("create bridge: %w", err)
		}
		return addAddresses(h, bridgeName, []netip.Addr{addr})
	})
}

// plug joins a namespace to the bridge of another by a veth pair and gives its
// end the addresses.
func plug(bridge, namespace, port string, addrs []netip.Addr) error {
	peer, err := netns.GetFromName(namespace)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", namespace, err)
	}
	defer peer.Close()
	err = withLinks(bridge, func(h *netlink.Handle) error {
		master, err := h.LinkByName(bridgeName)
		if err != nil {
			return fmt.Errorf("link %s: %w", bridgeName, err)
		}
		attrs := netlink.LinkAttrs{Name: port, MasterIndex: master.Attrs().Index}
		if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nodeLink, PeerNamespace: netlink.NsFd(peer)}); err != nil {
			return fmt.Errorf("create veth %s: %w", port, err)
		}
		return up(h, port)
	})
	if err != nil {
		return err
	}
	return withLinks(namespace, func(h *netlink.Handle) error { return addAddresses(h, nodeLink, addrs) })
}

func addAddresses(h *netlink.Handle, link string, addrs []netip.Addr) error {
	l, err := h.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	for _, a := range addrs {
		ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(subnetBits, a.BitLen())}
		if err := h.AddrAdd(l, &netlink.Addr{IPNet: ip}); err != nil {
			return fmt.Errorf("link %s address %s: %w", link, a, err)
		}
	}
	return up(h, link)
}

// removeNamespace ends the processes in a namespace and lets go of it, which
// removes its links. It need not exist.
func removeNamespace(ctx context.Context, name string) error {
	path := namespacePath(name)
	var info unix.Stat_t
	switch err := unix.Stat(path, &info); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("find namespace: %w", err)
	}
	if err := endProcesses(ctx, info); err != nil {
		return err
	}
	// Not mounted: a crash came between the file and the mount.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount namespace: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove namespace: %w", err)
	}
	return nil
}

// endProcesses kills all processes in a namespace and waits for their end.
func endProcesses(ctx context.Context, namespace unix.Stat_t) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	for {
		pids, err := processesIn(namespace)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for processes %v to end: %w", pids, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// processesIn lists the processes in a namespace but never this one, which
// visits namespaces on some of its threads.
func processesIn(namespace unix.Stat_t) ([]int, error) {
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, f := range folders {
		pid, err := strconv.Atoi(f.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var info unix.Stat_t
		// A process that is ending has no namespace any more.
		if unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &info) == nil && info.Dev == namespace.Dev && info.Ino == namespace.Ino {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
