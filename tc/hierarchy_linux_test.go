package tc

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFindHierarchy(t *testing.T) {
	unified := t.TempDir()
	controllers := func(names string) {
		require.NoError(t, os.WriteFile(filepath.Join(unified, "cgroup.controllers"), []byte(names+"\n"), 0o644))
	}
	v1 := `35 24 0:30 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu
36 24 0:31 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
37 24 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
`
	v2 := "38 24 0:33 / " + unified + " rw - cgroup2 cgroup2 rw\n"
	find := func(mounts string) (hierarchy, error) {
		return findHierarchy(bufio.NewScanner(strings.NewReader(mounts)))
	}

	want := hierarchy{cpu: "/sys/fs/cgroup/cpu", account: "/sys/fs/cgroup/cpuacct"}
	for _, mounts := range []string{v1, v1 + v2, v2 + v1} { // hybrid: the CPU controller is in v1
		h, err := find(mounts)
		require.NoError(t, err)
		require.Equal(t, want, h)
	}
	h, err := find("35 24 0:30 / /c rw shared:9 - cgroup cgroup rw,cpuacct,cpu\n")
	require.NoError(t, err)
	require.Equal(t, hierarchy{cpu: "/c", account: "/c"}, h)

	controllers("cpuset cpu io")
	h, err = find("garbage\n" + v2)
	require.NoError(t, err)
	require.Equal(t, hierarchy{v2: true, cpu: unified}, h)

	controllers("cpuset io")
	for _, mounts := range []string{"", v2} {
		_, err = find(mounts)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// controlFiles makes a folder with the files that the kernel would put there.
func controlFiles(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return dir
}

func TestVersion2WritesOneLine(t *testing.T) {
	h := hierarchy{v2: true}
	content := func(dir, name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(b)
	}
	dir := controlFiles(t, map[string]string{"cpu.max": "", "cpu.max.burst": ""})
	require.NoError(t, h.limit(dir, 50*time.Millisecond, 100*time.Millisecond, 20*time.Millisecond))
	require.Equal(t, "50000 100000", content(dir, "cpu.max"))
	require.Equal(t, "20000", content(dir, "cpu.max.burst"))

	dir = controlFiles(t, map[string]string{"cpu.max": ""}) // as before Linux 5.14
	require.NoError(t, h.limit(dir, 0, 100*time.Millisecond, 0))
	require.Equal(t, "max 100000", content(dir, "cpu.max"))
	require.ErrorIs(t, h.limit(dir, time.Second, time.Second, time.Second), errors.ErrUnsupported)
	require.NoFileExists(t, filepath.Join(dir, "cpu.max.burst"))
}

func TestVersion2Counters(t *testing.T) {
	dir := controlFiles(t, map[string]string{"cpu.stat": "usage_usec 1500000\nuser_usec 1\nnr_periods 30\nnr_throttled 7\nthrottled_usec 250000\n"})
	stats, err := hierarchy{v2: true}.stats([]string{dir})
	require.NoError(t, err)
	require.Equal(t, CPUStats{Periods: 30, Throttled: 7, ThrottledTime: 250 * time.Millisecond, Usage: 1500 * time.Millisecond}, stats)
}

func TestQuota(t *testing.T) {
	ms := time.Millisecond
	quota, period, burst, err := CPULimit{Cores: 0.5, Burst: 20 * ms}.quota()
	require.NoError(t, err)
	require.Equal(t, []time.Duration{50 * ms, 100 * ms, 20 * ms}, []time.Duration{quota, period, burst})
	quota, _, _, err = CPULimit{}.quota()
	require.NoError(t, err)
	require.Zero(t, quota)
	for _, l := range []CPULimit{
		{Cores: -1}, {Cores: 1, Period: 2 * time.Second}, {Cores: 1, Period: time.Microsecond},
		{Cores: 0.001}, {Cores: 0.5, Burst: 51 * ms}, {Burst: ms}, {Cores: 1, Burst: -ms},
	} {
		_, _, _, err := l.quota()
		require.Error(t, err, "%+v", l)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("nr_periods 1\nnr_throttled 2\n")
	f.Add("x")
	f.Add("a -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := parseStat(text)
		if err == nil {
			require.LessOrEqual(t, len(counts), strings.Count(text, "\n")+1)
		}
	})
}
