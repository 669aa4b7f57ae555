package tc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The NFQUEUE protocol, see linux/netfilter/nfnetlink_queue.h. It is spoken
// here on a plain socket because one thread has to wait for a packet and for a
// time, to the microsecond, at once; Go's poller waits in whole milliseconds.
const (
	msgPacket  = unix.NFNL_SUBSYS_QUEUE << 8
	msgVerdict = unix.NFNL_SUBSYS_QUEUE<<8 | 1
	msgConfig  = unix.NFNL_SUBSYS_QUEUE<<8 | 2

	attrPacketHeader  = 1
	attrVerdictHeader = 2
	attrTimestamp     = 4
	attrPayload       = 10
	attrLength        = 13

	configCommand = 1
	configCopy    = 2
	configLength  = 3
	configMask    = 4
	configFlags   = 5

	flagGSO = 1 << 2

	verdictDrop, verdictAccept = 0, 1

	headerBytes = 16 + 4 // nlmsghdr and nfgenmsg
)

// headRoom is how much of each packet is read: the addresses.
const headRoom = 40

// queue is an NFQUEUE that this process holds.
type queue struct {
	fd     int
	number uint16
	stat   *os.File // the kernel's counters of the namespace's queues
	out    []byte   // verdicts not yet sent
}

// openQueue binds the queue in the thread's network namespace.
func openQueue(number uint16) (*queue, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, unsupported(fmt.Errorf("netfilter socket: %w", err), unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT)
	}
	q := &queue{fd: fd, number: number}
	if err := q.bind(); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

// receiveBuffer holds what the kernel reports while the thread cannot run.
const receiveBuffer = 32 << 20

func (q *queue) bind() (err error) {
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := errors.Join(unix.Bind(q.fd, kernel), unix.Connect(q.fd, kernel)); err != nil {
		return fmt.Errorf("netfilter socket: %w", err)
	}
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer); err != nil {
		return fmt.Errorf("receive buffer of the NFQUEUE socket: %w", err)
	}
	// Overruns are counted by the queue; the socket need not fail on them too.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return fmt.Errorf("NFQUEUE socket: %w", err)
	}
	// With this on any socket the kernel notes when packets arrive, so that a
	// packet read late does not leave later for it.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("timestamps: %w", err)
	}
	err = q.request(attr(configCommand, []byte{1, 0, 0, 0})) // bind
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("NFQUEUE %d of this namespace is not ours: another shaper at work, or no right to: %w", q.number, err)
	} else if err != nil {
		return unsupported(fmt.Errorf("bind NFQUEUE %d: %w", q.number, err), unix.EINVAL, unix.EOPNOTSUPP, unix.ENOENT)
	}
	if err := q.request(attr(configCopy, []byte{0, 0, 0, headRoom, 2})); err != nil {
		return fmt.Errorf("NFQUEUE copy mode: %w", err)
	}
	if q.stat, err = os.Open("/proc/thread-self/net/netfilter/nfnetlink_queue"); err != nil {
		return err
	}
	return unix.SetNonblock(q.fd, true)
}

// setLength says how many packets may wait.
func (q *queue) setLength(packets uint32) error {
	err := q.configure(attr(configLength, binary.BigEndian.AppendUint32(nil, packets)))
	if err != nil {
		return fmt.Errorf("NFQUEUE length %d: %w", packets, err)
	}
	return nil
}

// setWhole says whether the large packets of segmentation offload stay whole,
// which is cheaper, or come as they would on a wire. That a full queue lets
// packets pass undelayed (fail open) is always off.
func (q *queue) setWhole(whole bool) error {
	var flags uint32
	if whole {
		flags = flagGSO
	}
	err := q.configure(attr(configMask, binary.BigEndian.AppendUint32(nil, flagGSO)),
		attr(configFlags, binary.BigEndian.AppendUint32(nil, flags)))
	if err != nil {
		return fmt.Errorf("NFQUEUE flags: %w", err)
	}
	return nil
}

// configure sends a request. An error that the kernel finds in it comes as a
// message, like a packet: the socket has only one reader.
func (q *queue) configure(attrs ...[]byte) error {
	return q.send(configMessage(unix.NLM_F_REQUEST, q.number, attrs...))
}

// request sends a request and reads until it is acknowledged, before there is
// a reader. Packets that rules of a killed process send meanwhile pass.
func (q *queue) request(attrs ...[]byte) error {
	if err := q.send(configMessage(unix.NLM_F_REQUEST|unix.NLM_F_ACK, q.number, attrs...)); err != nil {
		return err
	}
	b := make([]byte, readBytes)
	for acknowledged := false; !acknowledged; {
		n, err := unix.Read(q.fd, b)
		if err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		acknowledged = n >= headerBytes && binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR
		if err := parseMessages(b[:n], func(a arrival) { q.verdict(a.id, verdictAccept) }); err != nil {
			return err
		}
	}
	return q.flush()
}

// readBytes is room for what one read gives: one packet's head or an error
// with the request it is about.
const readBytes = 16 << 10

func (q *queue) send(b []byte) error {
	for {
		if _, err := unix.Write(q.fd, b); err != unix.EINTR {
			return err
		}
	}
}

// verdict notes what becomes of a packet; flush tells the kernel.
func (q *queue) verdict(id, verdict uint32) {
	var v [8]byte
	binary.BigEndian.PutUint32(v[:], verdict)
	binary.BigEndian.PutUint32(v[4:], id)
	start := len(q.out)
	q.out = append(q.out, make([]byte, headerBytes)...)
	q.out = appendAttr(q.out, attrVerdictHeader, v[:])
	putHeader(q.out[start:], msgVerdict, unix.NLM_F_REQUEST, q.number)
}

func (q *queue) flush() error {
	if len(q.out) == 0 {
		return nil
	}
	err := q.send(q.out)
	q.out = q.out[:0]
	return err
}

// dropped reads how many packets the kernel dropped: the queue was full, or
// this process too slow to be told.
func (q *queue) dropped() (uint64, error) {
	if _, err := q.stat.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	data, err := io.ReadAll(q.stat)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 7 || string(fields[0]) != strconv.Itoa(int(q.number)) {
			continue
		}
		full, err := strconv.ParseUint(string(fields[5]), 10, 32)
		slow, err2 := strconv.ParseUint(string(fields[6]), 10, 32)
		return full + slow, errors.Join(err, err2)
	}
	return 0, fmt.Errorf("NFQUEUE %d is gone", q.number)
}

func (q *queue) close() error {
	var err error
	if q.stat != nil {
		err = q.stat.Close()
	}
	return errors.Join(err, unix.Close(q.fd))
}

// arrival is what the kernel says of a packet.
type arrival struct {
	id     uint32
	source netip.Addr
	bytes  int
	at     time.Time // zero if the kernel did not say
}

// age is how long ago the packet arrived, as far as is known.
func (a arrival) age() time.Duration {
	if a.at.IsZero() {
		return 0
	}
	return min(max(0, time.Since(a.at)), time.Second) // the wall clock may have been set
}

// parseMessages calls packet for each packet in b, what one read gave, and
// returns the errors that the kernel reported for earlier requests.
func parseMessages(b []byte, packet func(arrival)) error {
	var faults error
	for len(b) >= headerBytes {
		length := int(binary.NativeEndian.Uint32(b))
		if length < headerBytes || length > len(b) {
			return errors.Join(faults, fmt.Errorf("netlink message of %d bytes in %d", length, len(b)))
		}
		switch body := b[headerBytes:length]; binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_ERROR:
			code := -int32(binary.NativeEndian.Uint32(b[16:]))
			// ENOENT: a packet was gone when its verdict came, its device went down.
			if errno := unix.Errno(code); errno != 0 && errno != unix.ENOENT {
				faults = errors.Join(faults, fmt.Errorf("NFQUEUE: %w", errno))
			}
		case msgPacket:
			if a, ok := parseArrival(body); ok {
				packet(a)
			}
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return faults
}

// parseArrival reads the attributes of a packet; ok is false without an id.
func parseArrival(b []byte) (a arrival, ok bool) {
	total := -1
	for len(b) >= 4 {
		length := int(binary.NativeEndian.Uint16(b))
		if length < 4 || length > len(b) {
			break
		}
		data := b[4:length]
		switch kind := binary.NativeEndian.Uint16(b[2:]) & 0x3fff; {
		case kind == attrPacketHeader && len(data) >= 4:
			a.id, ok = binary.BigEndian.Uint32(data), true
		case kind == attrTimestamp && len(data) >= 16:
			a.at = time.Unix(int64(binary.BigEndian.Uint64(data)), 1000*int64(binary.BigEndian.Uint64(data[8:])))
		case kind == attrLength && len(data) >= 4:
			total = int(binary.BigEndian.Uint32(data))
		case kind == attrPayload:
			a.source, a.bytes = sourceOf(data), len(data)
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	a.bytes = max(a.bytes, total)
	return a, ok
}

// sourceOf reads the source address of an IP packet; the zero address if it is none.
func sourceOf(ip []byte) netip.Addr {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(ip[12:16]))
	case len(ip) >= 40 && ip[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(ip[8:24]))
	}
	return netip.Addr{}
}

func configMessage(flags, queue uint16, attrs ...[]byte) []byte {
	b := make([]byte, headerBytes)
	for _, a := range attrs {
		b = append(b, a...)
	}
	putHeader(b, msgConfig, flags, queue)
	return b
}

// putHeader fills the headers of a message that is otherwise complete.
func putHeader(b []byte, kind, flags, queue uint16) {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], flags)
	binary.BigEndian.PutUint16(b[18:], queue) // nfgenmsg.res_id
}

func attr(kind uint16, data []byte) []byte { return appendAttr(nil, kind, data) }

func appendAttr(b []byte, kind uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, data...)
	return append(b, make([]byte, -len(data)&3)...)
}
