package tctest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"heartbed/tc"
)

// Arrival is one packet that came.
type Arrival struct {
	Seq  int           // of sending, from 0
	Took time.Duration // since it was sent
	At   time.Duration // since the first was sent
}

// Ping sends n echo requests from the first namespace to the second, one every
// gap. It returns the answers in the order they come, and ends when none has
// come for wait. The kernel answers, so the times are those of the network.
func (p Pair) Ping(n int, gap, wait time.Duration) ([]Arrival, error) {
	s, err := p.socket(0, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	to := &unix.SockaddrInet4{Addr: p.Addr[1].As4()}
	return measure(n, gap, wait, s, ipHeader+icmpHeader, func(b []byte) error {
		return unix.Sendto(s, echoRequest(b), 0, to)
	})
}

// Stream sends n datagrams from the first namespace to the second, one every
// gap, as Ping does, but they stay there: the times are one-way.
func (p Pair) Stream(n int, gap, wait time.Duration) ([]Arrival, error) {
	from, err := p.socket(0, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(from)
	to, err := p.socket(1, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(to)
	if err := unix.Bind(to, &unix.SockaddrInet4{Addr: p.Addr[1].As4()}); err != nil {
		return nil, err
	}
	name, err := unix.Getsockname(to)
	if err != nil {
		return nil, err
	}
	return measure(n, gap, wait, to, 0, func(b []byte) error { return unix.Sendto(from, b, 0, name) })
}

const (
	ipHeader, icmpHeader = 20, 8
	body                 = 16 // sequence number and time of sending
	echoReply            = 0
)

// echoRequest puts the ICMP header before a body.
func echoRequest(b []byte) []byte {
	b = append([]byte{8, 0, 0, 0, 'H', 'B', 0, 0}, b...)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
	return b
}

func (p Pair) socket(side, kind, protocol int) (fd int, err error) {
	err = tc.InNamespace(p.NS[side], func() error {
		fd, err = unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
}

// measure sends on one thread and receives from socket in on another. All
// threads of this process go before those of others, so that what is measured
// is the network, not the wait for a CPU.
func measure(n int, gap, wait time.Duration, in, offset int, send func([]byte) error) ([]Arrival, error) {
	timeout := unix.NsecToTimeval(int64(wait))
	if err := unix.SetsockoptTimeval(in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)) // for the two threads
	schedule(unix.SCHED_FIFO, 1)
	defer schedule(unix.SCHED_NORMAL, 0)
	start := time.Now()
	sent := onThread(func() error {
		for i := range n {
			due := time.Duration(i) * gap
			if d := due - time.Since(start); d > 0 {
				pause := unix.NsecToTimespec(int64(d))
				_ = unix.Nanosleep(&pause, nil)
			}
			b := binary.BigEndian.AppendUint64(nil, uint64(i))
			if err := send(binary.BigEndian.AppendUint64(b, uint64(time.Since(start)))); err != nil {
				return fmt.Errorf("send packet %d: %w", i, err)
			}
		}
		return nil
	})
	arrivals := make([]Arrival, 0, n)
	received := onThread(func() error {
		b := make([]byte, 128)
		for len(arrivals) < n {
			k, err := unix.Read(in, b)
			now := time.Since(start)
			if err == unix.EINTR {
				continue
			} else if err == unix.EAGAIN {
				return nil
			} else if err != nil {
				return err
			}
			if k != offset+body || offset > 0 && b[ipHeader] != echoReply {
				continue
			}
			a := Arrival{Seq: int(binary.BigEndian.Uint64(b[offset:])), At: now}
			a.Took = now - time.Duration(binary.BigEndian.Uint64(b[offset+8:]))
			arrivals = append(arrivals, a)
		}
		return nil
	})
	err := errors.Join(<-sent, <-received)
	return arrivals, err
}

// onThread runs f on a thread of its own.
func onThread(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- f()
	}()
	return done
}

// schedule sets how all threads of this process are scheduled; where that is
// not allowed, times read longer. Processes started meanwhile are normal.
func schedule(policy, priority uint32) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if id, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy,
				Priority: priority, Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
		}
	}
}
