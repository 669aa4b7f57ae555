package kind

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/live"
)

func nothing(context.Context) error { return nil }

func TestLessPrivileged(t *testing.T) {
	only := func(path string) bool { return path == "/dev/kmsg" }
	got := lessPrivileged([]string{"run", "--name", "x", "--privileged", "image"}, only)
	require.Equal(t, []string{"run", "--name", "x"}, got[:3])
	require.Equal(t, []string{"--device", "/dev/kmsg", "image"}, got[len(got)-3:])
	require.NotContains(t, got, "--privileged")
	require.NotContains(t, got, "/dev/net/tun", "what is not there cannot be given")
	require.Equal(t, []string{"exec", "-i", "x"}, lessPrivileged([]string{"exec", "--privileged", "-i", "x"}, only))
	require.Equal(t, []string{"ps"}, lessPrivileged([]string{"ps"}, only))
}

func TestParseRootGroup(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"v1":     {"12:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab/init.scope\n0::/\n", "docker/ab"},
		"v2":     {"0::/system.slice/docker-ab.scope/init.scope\n", "system.slice/docker-ab.scope"},
		"hybrid": {"0::/other\n3:cpu:/docker/ab\n", "docker/ab"},
	} {
		got, err := parseRootGroup(c.text)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	_, err := parseRootGroup("")
	require.Error(t, err)
}

// A damaged journal removes nothing that this backend cannot have made.
func TestRemoveRefusesForeignNames(t *testing.T) {
	for _, e := range []live.Entry{
		{Kind: kindCluster, Name: "mine"}, {Kind: kindNetwork, Name: "bridge"}, {Kind: kindContainer, Name: "heartbed-"},
		{Kind: kindFolder, Name: "/"}, {Kind: kindFolder, Name: "heartbed-x"}, {Kind: "disk", Name: "heartbed-x"},
	} {
		require.Error(t, remove(t.Context(), e), "%v", e)
	}
}
