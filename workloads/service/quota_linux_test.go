package service

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const (
	mountsV1 = `22 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw
23 22 0:21 / /sys/fs/cgroup/cpuset rw - cgroup cpuset rw,cpuset
24 22 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:5 - cgroup cgroup rw,cpu,cpuacct
25 22 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	mountsV2 = "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
	// a container's view: its own cgroup is mounted, the path is the host's
	mountsContainer = "30 1 0:25 /pods/p1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
)

func TestBindingQuota(t *testing.T) {
	v1 := "sys/fs/cgroup/cpu,cpuacct/"
	v2 := "sys/fs/cgroup/"
	for name, c := range map[string]struct {
		group, mounts string
		files         map[string]string
		want          float64
		fault         string
	}{
		"v1: the ancestor binds (golang/go#81180)": {
			"5:cpu,cpuacct:/node/pod\n4:cpuset:/\n0::/\n", mountsV1, map[string]string{
				v1 + "node/pod/cpu.cfs_quota_us": "-1\n", v1 + "node/pod/cpu.cfs_period_us": "100000\n",
				v1 + "node/cpu.cfs_quota_us": "150000\n", v1 + "node/cpu.cfs_period_us": "100000\n",
				v1 + "cpu.cfs_quota_us": "-1\n", v1 + "cpu.cfs_period_us": "100000\n",
			}, 1.5, ""},
		"v1: its own is tighter": {
			"5:cpu:/node/pod\n", mountsV1, map[string]string{
				v1 + "node/pod/cpu.cfs_quota_us": "5000\n", v1 + "node/pod/cpu.cfs_period_us": "10000\n",
				v1 + "node/cpu.cfs_quota_us": "200000\n", v1 + "node/cpu.cfs_period_us": "100000\n",
			}, 0.5, ""},
		"v2: the ancestor binds": {
			"0::/a/b/c\n", mountsV2, map[string]string{
				v2 + "a/b/c/cpu.max": "max 100000\n", v2 + "a/b/cpu.max": "300000 100000\n", v2 + "a/cpu.max": "400000 100000\n",
			}, 3, ""},
		"v2: in a container": {
			"0::/pods/p1/c\n", mountsContainer, map[string]string{
				v2 + "c/cpu.max": "max 100000\n", v2 + "cpu.max": "70000 100000\n",
			}, 0.7, ""},
		"none":       {"0::/\n", mountsV2, nil, 0, ""},
		"no cgroups": {"", mountsV2, nil, 0, ""},
		"a mount of another group with the same prefix": {"0::/pods/p12\n", mountsContainer, map[string]string{
			v2 + "cpu.max": "70000 100000\n"}, 0, ""},
		"nonsense": {"0::/a\n", mountsV2, map[string]string{v2 + "a/cpu.max": "lots\n"}, 0,
			`sys/fs/cgroup/a/cpu.max: found "lots\n", expected a quota and a period in us`},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{"proc/self/mountinfo": {Data: []byte(c.mounts)}}
			if c.group != "" {
				root["proc/self/cgroup"] = &fstest.MapFile{Data: []byte(c.group)}
			}
			for file, content := range c.files {
				root[file] = &fstest.MapFile{Data: []byte(content)}
			}
			got, err := bindingQuota(root)
			if c.fault != "" {
				require.EqualError(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func FuzzBindingQuota(f *testing.F) {
	f.Add("5:cpu:/node/pod\n", mountsV1, "5000 1000")
	f.Add("0::/a\n", mountsV2, "max 100000")
	f.Fuzz(func(t *testing.T, group, mounts, quota string) {
		root := fstest.MapFS{
			"proc/self/cgroup":        {Data: []byte(group)},
			"proc/self/mountinfo":     {Data: []byte(mounts)},
			"sys/fs/cgroup/a/cpu.max": {Data: []byte(quota)},
		}
		if got, err := bindingQuota(root); err == nil {
			require.GreaterOrEqual(t, got, 0.0)
		}
	})
}
