package tc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Packets are held in a process of their own, this program started again. All
// its threads run before normal ones. In a process where only one does, it
// waits for Go's runtime, whose threads wait for the CPUs under test: that
// held packets up for 100 ms where this holds them up for less than one.
//
// The processes speak JSON over a socket. When this one ends, however, the
// other sees the socket close, lets the packets go and removes its rules.
const (
	delayEnv  = "HEARTBED_TC_DELAY" // says to be the delaying process; its value holds the Options
	delayConn = 3                   // file descriptor of the socket
)

// order is what the delaying process shall do; answer is what became of it.
type (
	order struct {
		Kind  string // apply, stats or close
		Links map[netip.Addr]Link
	}
	answer struct {
		Stats       Stats
		Error       string
		Unsupported bool // the error is that
	}
)

func (a answer) err() error {
	switch {
	case a.Error == "":
		return nil
	case a.Unsupported:
		return fmt.Errorf("%s (%w)", a.Error, errors.ErrUnsupported)
	}
	return errors.New(a.Error)
}

// An init, so that any program that imports this package can be started so,
// tests included.
func init() {
	if text := os.Getenv(delayEnv); text != "" {
		os.Exit(delayMain(text))
	}
}

// delayMain is the delaying process.
func delayMain(text string) (code int) {
	hurry()
	conn := os.NewFile(delayConn, "orders")
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	reply := func(stats Stats, err error) error {
		a := answer{Stats: stats, Unsupported: errors.Is(err, errors.ErrUnsupported)}
		if err != nil {
			a.Error = err.Error()
		}
		return out.Encode(a)
	}
	var o Options
	err := json.Unmarshal([]byte(text), &o)
	var d *delayer
	if err == nil {
		d, err = newDelayer(o)
	}
	if replyErr := reply(Stats{}, err); err != nil || replyErr != nil {
		return 1
	}
	for {
		var todo order
		if in.Decode(&todo) != nil { // the other process is gone
			todo.Kind = "close"
		}
		var stats Stats
		switch todo.Kind {
		case "apply":
			err = d.Apply(context.Background(), todo.Links)
		case "stats":
			stats, err = d.Stats()
		case "close":
			err = d.Close()
		}
		if reply(stats, err) != nil && todo.Kind != "close" {
			todo.Kind, err = "close", d.Close()
		}
		if todo.Kind == "close" {
			return 0
		}
	}
}

// hurry lets all threads of this process, and those to come, run as soon as
// they have something to do. Where that is not allowed, packets are late more
// often, and counted.
func hurry() {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		first := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if unix.SchedSetAttr(id, first, 0) != nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, -20)
		}
	}
}

// process is the Shaper that has a delaying process do the work.
type process struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	conn   *os.File
	in     *json.Decoder
	out    *json.Encoder
	closed bool
}

// startProcess starts the delaying process in the thread's namespace.
func startProcess(o Options) (*process, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "orders"), os.NewFile(uintptr(fds[1]), "orders")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"heartbed-delay"}
	cmd.Env = append(os.Environ(), delayEnv+"="+string(text), "GOMAXPROCS=4") // its threads wait for the kernel, not for each other
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for this process, which then closes
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p := &process{cmd: cmd, conn: ours, in: json.NewDecoder(ours), out: json.NewEncoder(ours)}
	if _, err := p.answer(); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

func (p *process) answer() (Stats, error) {
	var a answer
	if err := p.in.Decode(&a); err != nil {
		return Stats{}, fmt.Errorf("the process %d that delays packets ended: %w", p.cmd.Process.Pid, err)
	}
	return a.Stats, a.err()
}

func (p *process) do(todo order) (Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Stats{}, os.ErrClosed
	}
	if err := p.out.Encode(todo); err != nil {
		return Stats{}, fmt.Errorf("the process %d that delays packets ended: %w", p.cmd.Process.Pid, err)
	}
	return p.answer()
}

// Apply implements Shaper.
func (p *process) Apply(_ context.Context, links map[netip.Addr]Link) error {
	if err := CheckLinks(links); err != nil {
		return err
	}
	_, err := p.do(order{"apply", links})
	return err
}

// Stats implements Shaper.
func (p *process) Stats() (Stats, error) { return p.do(order{Kind: "stats"}) }

// Close implements Shaper.
func (p *process) Close() error {
	_, err := p.do(order{Kind: "close"})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return os.ErrClosed
	}
	p.closed = true
	return errors.Join(err, p.end())
}

// end waits for the process, which ends when the socket closes if not before.
func (p *process) end() error {
	err := p.conn.Close()
	var exit *exec.ExitError
	if e := p.cmd.Wait(); !errors.As(e, &exit) { // its answers said why
		err = errors.Join(err, e)
	}
	return err
}
