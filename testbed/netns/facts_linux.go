package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"heartbed/tc"
	"heartbed/testbed/live"
)

// What larger plans need: kind's documentation asks for these inotify limits,
// and a load generator that opens a connection for every request uses a port
// for a minute each.
const (
	wantInotifyInstances = 512
	wantInotifyWatches   = 524288
	wantPorts            = 28000
)

func facts(ctx context.Context) []live.Fact {
	probed := tc.Probe(ctx)
	return []live.Fact{
		support("netem", probed.Netem, "delays packets in the kernel"),
		support("CPU quota", tryGroup(), "holds nodes and replicas to their cores"),
		support("nfqueue", probed.NFQueue, "delays packets in user space, for where there is no netem"),
		limit("inotify instances", "fs.inotify.max_user_instances", wantInotifyInstances),
		limit("inotify watches", "fs.inotify.max_user_watches", wantInotifyWatches),
		ports(),
		remains(DefaultJournals()),
	}
}

// remains says what runs that were killed left.
func remains(journals string) live.Fact {
	const name = "remains"
	if err := CheckClean(journals); err != nil {
		return fact(name, "info", err.Error())
	}
	return fact(name, "ok", "no run left anything behind")
}

func fact(name, state, note string) live.Fact {
	return live.Fact{Name: name, State: state, Note: note}
}

func support(name string, err error, does string) live.Fact {
	switch {
	case err == nil:
		return fact(name, "ok", does)
	case errors.Is(err, errors.ErrUnsupported):
		return fact(name, "missing", fmt.Sprintf("%s: %v", does, err))
	}
	return fact(name, "unknown", err.Error())
}

// limit compares a kernel parameter with what is wanted.
func limit(name, parameter string, want int) live.Fact {
	raw, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(parameter, ".", "/"))
	if err != nil {
		return fact(name, "unknown", err.Error())
	}
	got, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	switch {
	case err != nil:
		return fact(name, "unknown", fmt.Sprintf("%s: %v", parameter, err))
	case got < want:
		return fact(name, "low", fmt.Sprintf("%d, kind wants %d: sysctl -w %s=%d", got, want, parameter, want))
	}
	return fact(name, "ok", fmt.Sprintf("%d, kind wants %d", got, want))
}

// ports counts the local ports that connections can start from.
func ports() live.Fact {
	const name, parameter = "local ports", "net.ipv4.ip_local_port_range"
	raw, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(parameter, ".", "/"))
	if err != nil {
		return fact(name, "unknown", err.Error())
	}
	var from, to int
	if _, err := fmt.Sscan(string(raw), &from, &to); err != nil {
		return fact(name, "unknown", fmt.Sprintf("%s: %v", parameter, err))
	}
	n := to - from + 1
	note := fmt.Sprintf("%d: enough for %d new connections a second, each keeps its port for a minute", n, n/60)
	if n < wantPorts {
		return fact(name, "low", fmt.Sprintf("%s: sysctl -w %s='32768 60999'", note, parameter))
	}
	return fact(name, "ok", note)
}
