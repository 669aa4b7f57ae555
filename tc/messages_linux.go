package tc

import (
	"encoding/binary"
	"math"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The messages that shape a device: an htb root, and for each peer a class
// with the peer's rate, a netem in it with the delay, and a filter that sends
// it the packets to the peer. Built here rather than by package netlink, which
// knows neither nanoseconds nor the seed of netem.

// rootHandle is the root's number ("HB"), by which Clear knows it as ours.
const rootHandle = 0x4842

// Attributes of netem that package nl lacks, from linux/pkt_sched.h.
const (
	netemLatency64 = 10
	netemJitter64  = 11
	netemSeed      = 14
)

// unlimited is the rate of a class without one, in bytes per second: htb has
// no way to say none.
const unlimited = maxRateBits / 8

// egress is one peer of a device: the class of what is sent to it.
type egress struct {
	peer  netip.Addr
	minor uint16
	link  Link
	delay time.Duration
	limit uint32 // packets that netem may hold
	seed  uint64
}

func (e egress) class() uint32 { return netlink.MakeHandle(rootHandle, e.minor) }

// request starts a message about device; the kind is that of the last part.
func request(command, flags int, device int, handle, parent, info uint32, kind string, options *nl.RtAttr) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(command, unix.NLM_F_ACK|flags)
	r.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(device), Handle: handle, Parent: parent, Info: info})
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	if options != nil {
		r.AddData(options)
	}
	return r
}

const (
	create  = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	replace = unix.NLM_F_CREATE | unix.NLM_F_REPLACE
)

// addRoot makes the htb that passes on unshaped what no filter claims.
func addRoot(device int) *nl.NetlinkRequest {
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_HTB_INIT, (&nl.TcHtbGlob{Version: 3, Rate2Quantum: 10}).Serialize())
	return request(unix.RTM_NEWQDISC, create, device, netlink.MakeHandle(rootHandle, 0), netlink.HANDLE_ROOT, 0, "htb", options)
}

func deleteRoot(device int) *nl.NetlinkRequest {
	return request(unix.RTM_DELQDISC, 0, device, netlink.MakeHandle(rootHandle, 0), netlink.HANDLE_ROOT, 0, "htb", nil)
}

// setClass makes or changes the class, which holds the rate.
func (e egress) setClass(device int) *nl.NetlinkRequest {
	rate := uint64(unlimited)
	if e.link.RateBits > 0 {
		rate = uint64(math.Ceil(e.link.RateBits / 8))
	}
	const mtu = 1600
	burst := rate/1000 + mtu // a millisecond, less than what the delay is exact to
	spec := nl.TcRateSpec{Linklayer: 1 /* Ethernet: no rate table needed */, Rate: uint32(min(rate, math.MaxUint32))}
	ticks := uint32(min(burst*uint64(time.Second)/rate/nanosecondsPerTick, math.MaxUint32))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_HTB_PARMS, (&nl.TcHtbCopt{Rate: spec, Ceil: spec, Buffer: ticks, Cbuffer: ticks, Quantum: 60_000}).Serialize())
	if rate > math.MaxUint32 {
		options.AddRtAttr(nl.TCA_HTB_RATE64, nl.Uint64Attr(rate))
		options.AddRtAttr(nl.TCA_HTB_CEIL64, nl.Uint64Attr(rate))
	}
	return request(unix.RTM_NEWTCLASS, unix.NLM_F_CREATE, device, e.class(), netlink.MakeHandle(rootHandle, 0), 0, "htb", options)
}

// nanosecondsPerTick is the kernel's unit of time in traffic control (PSCHED_SHIFT).
const nanosecondsPerTick = 64

// setNetem makes or changes the netem of the class. Held packets stay.
func (e egress) setNetem(device int) *nl.NetlinkRequest {
	qopt := nl.TcNetemQopt{
		Latency: uint32(e.delay / nanosecondsPerTick), Jitter: uint32(e.link.Jitter / nanosecondsPerTick),
		Limit: e.limit, Loss: uint32(math.Round(e.link.Loss * math.MaxUint32)),
	}
	options := nl.NewRtAttr(nl.TCA_OPTIONS, qopt.Serialize())
	options.AddRtAttr(netemLatency64, nl.Uint64Attr(uint64(e.delay)))
	options.AddRtAttr(netemJitter64, nl.Uint64Attr(uint64(e.link.Jitter)))
	if e.link.Jitter > 0 {
		// With a rate, whichever, netem counts a packet's delay from the one
		// before it, so that none overtakes; without, jitter reorders.
		rate := nl.TcNetemRate{Rate: math.MaxUint32}
		options.AddRtAttr(nl.TCA_NETEM_RATE64, nl.Uint64Attr(unlimited))
		options.AddRtAttr(nl.TCA_NETEM_RATE, rate.Serialize())
		options.AddRtAttr(nl.TCA_NETEM_DELAY_DIST, jitterTable())
	}
	options.AddRtAttr(netemSeed, nl.Uint64Attr(e.seed)) // kernels before 6.6 ignore it
	return request(unix.RTM_NEWQDISC, replace, device, netlink.MakeHandle(e.minor, 0), e.class(), 0, "netem", options)
}

// jitterTable is the distribution of the jitter as netem wants it: equally
// likely values in standard deviations, 1 = netemScale. Without a table netem
// draws uniformly, from as much below the delay as above it; here nothing is
// below it, as in line.next. The last of so many values is 3.3.
func jitterTable() []byte {
	const values, netemScale = 1024, 8192
	var table []byte
	for i := range values {
		quantile := math.Sqrt2 * math.Erfinv((2*float64(i)+1)/values-1)
		table = binary.NativeEndian.AppendUint16(table, uint16(math.Round(netemScale*max(0, quantile))))
	}
	return table
}

// addFilter sends the class what goes to the peer's address.
func (e egress) addFilter(device int) *nl.NetlinkRequest {
	protocol, priority, offset := uint16(unix.ETH_P_IP), uint16(1), 16 // of the destination in the header
	if e.peer.Is6() {
		protocol, priority, offset = unix.ETH_P_IPV6, 2, 24
	}
	sel := nl.TcU32Sel{Flags: nl.TC_U32_TERMINAL}
	for word := e.peer.AsSlice(); len(word) > 0; word = word[4:] {
		// The kernel wants both in network order.
		value := binary.NativeEndian.Uint32(word)
		sel.Keys = append(sel.Keys, nl.TcU32Key{Mask: math.MaxUint32, Val: value, Off: int32(offset)})
		sel.Nkeys, offset = sel.Nkeys+1, offset+4
	}
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_U32_CLASSID, nl.Uint32Attr(e.class()))
	options.AddRtAttr(nl.TCA_U32_SEL, sel.Serialize())
	info := netlink.MakeHandle(priority, nl.Swap16(protocol))
	return request(unix.RTM_NEWTFILTER, create, device, 0, netlink.MakeHandle(rootHandle, 0), info, "u32", options)
}
