package tc_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"heartbed/tc"
	"heartbed/testbed/testbedtest"
)

const burnEnv = "TC_TEST_BURN"

// burn uses so much CPU time once a byte comes on stdin, and prints the time it took.
func burn(amount string) {
	want, err := time.ParseDuration(amount)
	if err != nil {
		panic(err)
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		panic(err)
	}
	start, used := time.Now(), cpuTime()
	for cpuTime()-used < want {
	}
	fmt.Print(time.Since(start))
}

func cpuTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

var groups atomic.Int64

func newGroup(t *testing.T, parent string, limit tc.CPULimit) (*tc.Group, string) {
	t.Helper()
	path := fmt.Sprintf("%s/%d", parent, groups.Add(1))
	if parent == "" {
		path = fmt.Sprintf("tctest-%d-%d", os.Getpid(), groups.Add(1))
	}
	g, err := tc.NewGroup(path, limit)
	testbedtest.Require(t, "netns", err)
	t.Cleanup(func() { require.NoError(t, g.Remove()) })
	return g, path
}

// wallTime burns CPU time in a process of the group.
func wallTime(t *testing.T, g *tc.Group, cpu time.Duration) time.Duration {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), burnEnv+"="+cpu.String(), "GOMAXPROCS=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, g.Add(cmd.Process.Pid))
	pids, err := g.Processes()
	require.NoError(t, err)
	require.Equal(t, []int{cmd.Process.Pid}, pids)
	_, err = in.Write([]byte{1})
	require.NoError(t, err)
	b := make([]byte, 64)
	n, err := out.Read(b)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	took, err := time.ParseDuration(string(b[:n]))
	require.NoError(t, err)
	return took
}

// The shares are small so that they bind on a busy machine too.
var tenth = tc.CPULimit{Cores: 0.1, Period: 20 * time.Millisecond}

func TestAQuotaBinds(t *testing.T) {
	g, _ := newGroup(t, "", tenth)
	took := wallTime(t, g, 40*time.Millisecond)
	require.Greater(t, took, 340*time.Millisecond, "40 ms of CPU at 0.1 cores are 400 ms, less the first and last period")
	stats, err := g.Stats()
	require.NoError(t, err)
	require.GreaterOrEqual(t, stats.Throttled, uint64(15))
	require.GreaterOrEqual(t, stats.Periods, stats.Throttled)
	require.Greater(t, stats.ThrottledTime, 250*time.Millisecond)
	require.GreaterOrEqual(t, stats.Usage, 40*time.Millisecond)

	require.NoError(t, g.Limit(tc.CPULimit{}))
	before := stats.Throttled
	wallTime(t, g, 40*time.Millisecond)
	stats, err = g.Stats()
	require.NoError(t, err)
	require.Equal(t, before, stats.Throttled)
}

func TestAnAncestorsQuotaBinds(t *testing.T) {
	_, path := newGroup(t, "", tenth)
	inner, innerPath := newGroup(t, path, tc.CPULimit{})
	innermost, _ := newGroup(t, innerPath, tc.CPULimit{})
	require.Greater(t, wallTime(t, inner, 40*time.Millisecond), 340*time.Millisecond)
	require.Greater(t, wallTime(t, innermost, 20*time.Millisecond), 140*time.Millisecond)
}

func TestABurstMayBeSavedUp(t *testing.T) {
	limit := tenth
	limit.Burst = 2 * time.Millisecond
	g, _ := newGroup(t, "", limit)
	require.NoError(t, g.Limit(tc.CPULimit{Cores: 0.2, Period: 10 * time.Millisecond, Burst: time.Millisecond}))
}

func TestGroupsComeAndGo(t *testing.T) {
	g, path := newGroup(t, "", tc.CPULimit{Cores: 0.5})
	_, err := tc.NewGroup(path, tc.CPULimit{})
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = tc.NewGroup(path+"/a/b", tc.CPULimit{Cores: 0.25})
	require.NoError(t, err)
	found, err := tc.OpenGroup(path + "/a/b")
	require.NoError(t, err)
	_, err = found.Stats()
	require.NoError(t, err)
	require.NoError(t, g.Remove(), "with those inside")
	require.NoError(t, g.Remove(), "again")
	_, err = tc.OpenGroup(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestNewGroupNamesWhatIsWrong(t *testing.T) {
	for _, path := range []string{"", ".", "/x", "../x", "a/../../x"} {
		_, err := tc.NewGroup(path, tc.CPULimit{})
		require.ErrorContains(t, err, "expected a relative path", path)
	}
	_, err := tc.NewGroup("x", tc.CPULimit{Cores: -1, Period: time.Minute})
	require.ErrorContains(t, err, "cores: found -1")
	require.ErrorContains(t, err, "period: found 1m0s")
}
