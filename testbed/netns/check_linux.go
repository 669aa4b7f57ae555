package netns

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"heartbed/tc"
)

// check tries what a run needs rather than ask for versions and modules.
func check(ctx context.Context, _ Options) error {
	if err := isRoot(); err != nil {
		return err
	}
	if err := onOwnThread(tryLinks); err != nil {
		return err
	}
	if err := tryGroup(); err != nil {
		return err
	}
	probed := tc.Probe(ctx)
	if probed.Netem == nil || probed.NFQueue == nil {
		return nil
	}
	return fmt.Errorf("no way to delay packets: %w", errors.Join(probed.Netem, probed.NFQueue))
}

func isRoot() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("network namespaces need root: run it with sudo: %w", errors.ErrUnsupported)
	}
	return nil
}

// tryLinks makes a bridge with a veth pair in a namespace without a name,
// which ends with this call.
func tryLinks() error {
	ns, err := netns.New()
	if err != nil {
		return unsupported("create a network namespace", err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := h.LinkAdd(bridge); err != nil {
		return unsupported("create a bridge", err)
	}
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port", MasterIndex: bridge.Index}, PeerName: nodeLink}); err != nil {
		return unsupported("create a veth pair on a bridge", err)
	}
	return nil
}

// tryGroup makes a CPU group with a quota in another.
func tryGroup() error {
	name := fmt.Sprintf("%scheck-%d", groupPrefix, os.Getpid())
	_, err := tc.NewGroup(name+"/half", tc.CPULimit{Cores: 0.5})
	if err != nil {
		err = unsupported("create a CPU group with a quota", err)
	}
	return errors.Join(err, removeGroup(name))
}

// unsupported marks the answers of a kernel that lacks something, or of a
// container that may not do it.
func unsupported(what string, err error) error {
	for _, missing := range []error{unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.ENODEV, unix.EROFS} {
		if errors.Is(err, missing) && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("%s: %w (%w)", what, err, errors.ErrUnsupported)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}
