package tc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// queueNumber is the NFQUEUE used in every namespace ("HB").
const queueNumber = 0x4842

// delayer holds the packets that arrive in one namespace, in user space: one
// thread reads their heads from the kernel's queue, and when a packet's time
// has come, tells the kernel to go on with it.
type delayer struct {
	o     Options
	start time.Time
	queue *queue
	rules *rules
	wake  int // an eventfd that ends the thread's wait

	polled  [2]unix.PollFd // what the thread waits for; here, as it must not
	timeout unix.Timespec  // allocate: a garbage collection would hold it up

	applying sync.Mutex

	mu      sync.Mutex // guards what follows
	lines   map[netip.Addr]*line
	held    waiting
	stats   Stats
	closing bool
	err     error // why the thread ended

	done   chan struct{} // closed when the thread ended
	closed sync.Once
}

// newDelayer is called on a thread in the namespace to shape.
func newDelayer(o Options) (*delayer, error) {
	q, err := openQueue(queueNumber)
	if err != nil {
		return nil, err
	}
	r, err := openRules(queueNumber, o.Uplink)
	if err != nil {
		return nil, errors.Join(err, q.close())
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(err, r.close(), q.close())
	}
	d := &delayer{o: o, start: time.Now(), queue: q, rules: r, wake: wake,
		lines: map[netip.Addr]*line{}, done: make(chan struct{})}
	d.polled = [2]unix.PollFd{{Fd: int32(q.fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	go d.run()
	return d, nil
}

// Apply implements Shaper.
func (d *delayer) Apply(_ context.Context, links map[netip.Addr]Link) error {
	if err := CheckLinks(links); err != nil {
		return err
	}
	d.applying.Lock()
	defer d.applying.Unlock()
	whole := true
	d.mu.Lock()
	err := d.err
	if d.closing {
		err = os.ErrClosed
	}
	for addr, link := range links {
		if d.lines[addr] == nil {
			d.lines[addr] = newLine(addr, d.o.Seed)
		}
		d.lines[addr].set(link, d.o.delay(link))
		// Loss and rate are about the packets of a wire, not about large ones.
		whole = whole && link.Loss == 0 && link.RateBits == 0
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	err = errors.Join(d.queue.setLength(d.o.queueLength(links)), d.queue.setWhole(whole), d.rules.setPeers(sortedAddrs(links)))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for addr := range d.lines {
		if _, ok := links[addr]; !ok {
			delete(d.lines, addr)
		}
	}
	return nil
}

// Stats implements Shaper.
func (d *delayer) Stats() (Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.stats, fmt.Errorf("the packet delay stopped: %w", d.err)
	}
	if d.closing {
		return d.stats, os.ErrClosed
	}
	stats := d.stats
	full, err := d.queue.dropped()
	stats.Dropped += full
	return stats, err
}

// Close implements Shaper.
func (d *delayer) Close() error {
	err := os.ErrClosed
	d.closed.Do(func() { err = d.close() })
	return err
}

func (d *delayer) close() error {
	d.applying.Lock()
	defer d.applying.Unlock()
	// In this order no packet is lost: no new ones, let those held go, and
	// only then take the hook away, which drops what is still queued.
	err := d.rules.setPeers(nil)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // cleared from outside
	}
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	if _, e := unix.Write(d.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}); e != nil {
		return errors.Join(err, e)
	}
	<-d.done
	d.mu.Lock() // Stats may be reading
	defer d.mu.Unlock()
	return errors.Join(err, d.err, d.rules.close(), d.queue.close(), unix.Close(d.wake))
}

// run is the thread.
func (d *delayer) run() {
	defer close(d.done)
	runtime.LockOSThread()
	buffer := make([]byte, readBytes)
	for {
		end, err := d.step(buffer)
		if err == nil {
			err = d.queue.flush()
		}
		if err == nil && !end {
			err = d.wait()
		}
		if err != nil {
			d.mu.Lock()
			d.err = err
			d.mu.Unlock()
		}
		if end || err != nil {
			return
		}
	}
}

// maxReads bounds how long packets that are due wait for the reading of others.
const maxReads = 64

// step takes in what has arrived and lets go what is due; when the shaper
// closes, everything, and it says so.
func (d *delayer) step(buffer []byte) (end bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := 0; i < maxReads || d.closing; i++ {
		n, err := unix.Read(d.queue.fd, buffer)
		if err == unix.EAGAIN {
			break
		} else if err == unix.EINTR {
			continue
		} else if err != nil {
			return false, fmt.Errorf("read from NFQUEUE: %w", err)
		}
		if err := parseMessages(buffer[:n], d.take); err != nil {
			return false, err
		}
	}
	for now := d.now(); len(d.held) > 0 && (d.closing || d.held[0].due <= now); {
		d.release(d.held.pop(), now)
	}
	return d.closing, nil
}

func (d *delayer) now() time.Duration { return time.Since(d.start) }

// take decides when a packet leaves.
func (d *delayer) take(a arrival) {
	l := d.lines[a.source]
	if l == nil { // no longer a peer
		d.queue.verdict(a.id, verdictAccept)
		return
	}
	d.stats.Packets++
	due, fate := l.next(d.now()-a.age(), a.bytes)
	switch fate {
	case kept:
		d.held.push(packet{a.id, due, l})
	case lost:
		d.stats.Lost++
		d.queue.verdict(a.id, verdictDrop)
	case overflown:
		d.stats.Overflown++
		d.queue.verdict(a.id, verdictDrop)
	}
}

func (d *delayer) release(p packet, now time.Duration) {
	d.queue.verdict(p.id, verdictAccept)
	if int32(p.id-p.of.released) < 0 {
		d.stats.Reordered++
	}
	p.of.released = p.id
	if late := now - p.due; !d.closing {
		d.stats.MaxLate = max(d.stats.MaxLate, late)
		if late > LateAfter {
			d.stats.Late++
		}
	}
}

// wait returns when there is something to read, or the next packet is due.
func (d *delayer) wait() error {
	var timeout *unix.Timespec
	if len(d.held) > 0 {
		d.timeout = unix.NsecToTimespec(max(0, int64(d.held[0].due-d.now())))
		timeout = &d.timeout
	}
	if _, err := unix.Ppoll(d.polled[:], timeout, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for packets: %w", err)
	}
	return nil
}
