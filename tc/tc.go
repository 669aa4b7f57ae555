// Package tc shapes what a machine, or a network namespace standing for one,
// gets: delay, jitter, loss and rate of its packets, and its share of CPU time.
//
// Packets are held either by the kernel (netem under htb) or, where the kernel
// lacks netem, in user space through NFQUEUE. Probe says which of them work.
package tc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// Link is the way between two machines. The fields hold for both directions
// alike where both machines shape; the zero value changes nothing.
type Link struct {
	RTT      time.Duration // added round-trip time; each side adds half of it
	Jitter   time.Duration // standard deviation of a normal draw that each packet is held longer by if it is above 0; the order is kept
	Loss     float64       // share of the packets lost in each direction, 0 to 1
	RateBits float64       // bits per second in each direction; 0 = no limit
}

// Method is how packets are held.
type Method string

// The methods.
const (
	Auto    Method = "auto"    // netem if the kernel has it, else nfqueue
	Netem   Method = "netem"   // the kernel's netem below htb: acts on what leaves
	NFQueue Method = "nfqueue" // user space: acts on what arrives
)

// Options say where and how to shape.
type Options struct {
	NS     string // network namespace: a name as of `ip netns`, a path, or "" for this thread's own
	Method Method // "" is Auto

	// Alone says that the peers do not shape: this side adds whole round trips.
	// Jitter, loss and rate are then of one direction, that in which Method acts.
	Alone bool

	// Uplink says that the namespace is the router of the machines behind it and
	// names the interface by which it reaches the others: what it forwards to
	// any other interface is shaped, by the peer that sent it, also between two
	// machines behind it. Only NFQueue can.
	Uplink string

	// PacketRate is the load, in packets per second, which the queues must
	// carry without a drop; 0 means DefaultPacketRate.
	PacketRate float64

	Seed uint64 // of loss and jitter
}

// delay is what one direction adds.
func (o Options) delay(l Link) time.Duration {
	if o.Alone {
		return l.RTT
	}
	return l.RTT / 2
}

// queueReserve is for how long packets may pile up because the thread does not run.
const queueReserve = 200 * time.Millisecond

// queueLength is the room for all packets on their way at the packet rate, and
// half as many again.
func (o Options) queueLength(links map[netip.Addr]Link) uint32 {
	var longest time.Duration
	for _, l := range links {
		held := o.delay(l) + 4*l.Jitter // one packet in 30,000 is held longer
		if l.RateBits > 0 {
			held += lineBuffer
		}
		longest = max(longest, held)
	}
	rate := o.PacketRate
	if rate == 0 {
		rate = DefaultPacketRate
	}
	return uint32(math.Ceil(1.5 * rate * (longest + queueReserve).Seconds()))
}

// DefaultPacketRate is the packet rate the queues are sized for, per namespace.
const DefaultPacketRate = 20_000

// Stats count since the shaper was made.
type Stats struct {
	Packets   uint64 // of shaped links, that arrived here
	Lost      uint64 // lost on purpose, as Link.Loss asks
	Overflown uint64 // of more than a link's rate, when the buffer before it was full, as at any bottleneck
	Dropped   uint64 // because a queue of ours was full: the emulation is not what was asked for
	Reordered uint64 // released after a later packet of the same link
	Late      uint64 // released more than LateAfter after they were due
	MaxLate   time.Duration
}

// LateAfter is how long after its time a packet counts as late.
const LateAfter = 3 * time.Millisecond

// Shaper shapes the traffic between one namespace and its peers.
type Shaper interface {
	// Apply replaces all links, given by the peer's address. Packets already
	// held keep their time.
	Apply(ctx context.Context, links map[netip.Addr]Link) error
	// Stats reads the counters. It fails if the shaper stopped working.
	Stats() (Stats, error)
	// Close releases what is held and removes all that was set up.
	Close() error
}

// Support is the answer to whether something works here: nil = it does, an
// error wrapping errors.ErrUnsupported = it does not, any other error = it
// could not be told.
type Support error

// Probed says which methods work on this machine.
type Probed struct {
	Netem, NFQueue Support
}

// Best is the kernel's own method, where it has it.
func (p Probed) Best() Method {
	if p.Netem == nil {
		return Netem
	}
	return NFQueue
}

// CheckLinks names all faults of links at once.
func CheckLinks(links map[netip.Addr]Link) error {
	var faults []error
	for _, a := range sortedAddrs(links) {
		fault := func(field string, found any, want string) {
			faults = append(faults, fmt.Errorf("link to %s: %s: found %v, expected %s", a, field, found, want))
		}
		l := links[a]
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
			fault("address", a, "one machine's plain IPv4 or IPv6 address")
		}
		if l.RTT < 0 || l.RTT > maxRTT {
			fault("RTT", l.RTT, fmt.Sprintf("0 to %v", maxRTT))
		}
		if l.Jitter < 0 || l.Jitter > maxJitter {
			fault("jitter", l.Jitter, fmt.Sprintf("0 to %v", maxJitter))
		}
		if !(l.Loss >= 0 && l.Loss <= 1) {
			fault("loss", l.Loss, "0 to 1")
		}
		if l.RateBits != 0 && !(l.RateBits >= minRateBits && l.RateBits <= maxRateBits) {
			fault("rate", l.RateBits, fmt.Sprintf("0 or %g to %g bits per second", minRateBits, maxRateBits))
		}
	}
	return errors.Join(faults...)
}

const (
	maxRTT      = time.Minute
	maxJitter   = time.Second // netem counts it in ns in 32 bits
	minRateBits = 1e3
	maxRateBits = 1e12
)

func sortedAddrs(links map[netip.Addr]Link) []netip.Addr {
	addrs := make([]netip.Addr, 0, len(links))
	for a := range links {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}
