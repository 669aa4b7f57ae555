package tc

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// NewShaper makes a shaper for one namespace, without links so far. The error
// wraps errors.ErrUnsupported if the kernel cannot do it, and fs.ErrNotExist
// if there is no such namespace.
func NewShaper(ctx context.Context, o Options) (Shaper, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Uplink != "" {
		o.Method = NFQueue
	}
	if o.Method == "" || o.Method == Auto {
		o.Method = Probe(ctx).Best()
	}
	var s Shaper
	err := InNamespace(o.NS, func() (err error) {
		if o.Method == Netem {
			s = newKernelShaper(o)
			return inScratch(probeNetem)
		}
		s, err = startProcess(o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shape by %s: %w", o.Method, err)
	}
	return s, nil
}

func (o Options) check() error {
	var faults []error
	switch o.Method {
	case "", Auto, Netem, NFQueue:
	default:
		faults = append(faults, fmt.Errorf("method: found %q, expected %s, %s or %s", o.Method, Auto, Netem, NFQueue))
	}
	if o.Uplink != "" && o.Method == Netem {
		faults = append(faults, fmt.Errorf("method: found %s, expected %s where there is an uplink", o.Method, NFQueue))
	}
	if len(o.Uplink) >= unix.IFNAMSIZ {
		faults = append(faults, fmt.Errorf("uplink: found %q, expected less than %d characters", o.Uplink, unix.IFNAMSIZ))
	}
	if !(o.PacketRate >= 0 && o.PacketRate <= 1e7) {
		faults = append(faults, fmt.Errorf("packet rate: found %v, expected 0 (default) to 1e7 packets per second", o.PacketRate))
	}
	return errors.Join(faults...)
}

// Probe tries, in scratch network namespaces, which methods work here. It
// loads no kernel module and leaves nothing behind.
func Probe(ctx context.Context) Probed {
	return Probed{Netem: inScratch(probeNetem), NFQueue: inScratch(probeQueue)}
}

func probeQueue() error {
	q, err := openQueue(queueNumber)
	if err != nil {
		return err
	}
	r, err := openRules(queueNumber, "")
	if err == nil {
		err = r.close()
	}
	return errors.Join(err, q.close())
}

// Clear removes what a shaper that was killed left in a namespace, and takes
// the rules away from one that still runs. It does nothing if there is nothing.
func Clear(_ context.Context, ns string) error {
	err := InNamespace(ns, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		return errors.Join(deleteTable(conn), clearRoots())
	})
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	return nil
}
