package netns

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/live"
	"heartbed/testbed/testbedtest"
)

func TestLimit(t *testing.T) {
	const parameter = "fs.inotify.max_user_watches"
	require.Equal(t, "ok", limit("watches", parameter, 0).State)
	low := limit("watches", parameter, 1<<40)
	require.Equal(t, "low", low.State)
	require.Contains(t, low.Note, "sysctl -w fs.inotify.max_user_watches=1099511627776", "the command that mends it")
	require.Equal(t, "unknown", limit("watches", "fs.inotify.nothing", 1).State)
}

// Connections that start from few ports run out of them (grafana/k6#826).
func TestPorts(t *testing.T) {
	testbedtest.Require(t, "netns", needsRoot())
	if !elsewhere(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}) {
		return
	}
	for text, want := range map[string]live.Fact{
		"32768 60999": fact("local ports", "ok", "28232: enough for 470 new connections a second, each keeps its port for a minute"),
		"40000 40999": fact("local ports", "low", "1000: enough for 16 new connections a second, each keeps its port for a minute: sysctl -w net.ipv4.ip_local_port_range='32768 60999'"),
	} {
		require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(text), 0))
		require.Equal(t, want, ports())
	}
}

func TestRemains(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, "ok", remains(dir).State)
	j, err := live.OpenJournal(dir, "0badcafe", 1<<30, 1) // no such process
	require.NoError(t, err)
	require.NoError(t, j.Leave())
	require.Equal(t, fact("remains", "info", "found what run 0badcafe left behind; remove it with 'heartbed down' or start with --clean"), remains(dir))
}
