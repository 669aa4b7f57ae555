package image

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

// progressLog shows a build's progress in the log of the test.
type progressLog struct{ t *testing.T }

func (l progressLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", p)
	return len(p), nil
}

// The node image is built as far as the cache lacks it, a second build has
// nothing to do, and what Docker has are the programs that were pinned.
func TestBuildNodeImage(t *testing.T) {
	testbedtest.Require(t, "kind", Check(t.Context()))
	o := Options{Progress: progressLog{t}}
	if !testbedtest.Required("kind") && !built(t, o) {
		t.Skip("the node image is not built yet, which takes minutes: HEARTBED_REQUIRE=kind or 'heartbed image build' makes it")
	}
	name, err := Build(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, Name(), name)

	begin := time.Now()
	_, err = Build(t.Context(), o)
	require.NoError(t, err)
	require.Less(t, time.Since(begin), 5*time.Second, "an unchanged build")

	inspect := docker(t, "image", "inspect", name)
	var images []struct {
		Config struct {
			Env, Entrypoint []string
			StopSignal      string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(inspect), &images))
	require.Len(t, images, 1)
	want := nodeConfig("")
	require.Equal(t, want.Env, images[0].Config.Env)
	require.Equal(t, want.Entrypoint, images[0].Config.Entrypoint)
	require.Equal(t, want.StopSignal, images[0].Config.StopSignal)

	v := Pinned()
	for _, c := range []struct{ program, arg, says string }{
		{"/usr/bin/kubelet", "--version", v.Kubernetes},
		{"/usr/bin/kubeadm", "version", v.Kubernetes},
		{"/usr/bin/containerd", "--version", "containerd"},
		{"/usr/sbin/runc", "--version", "runc"},
		{"/opt/cni/bin/ptp", "--version", "CNI"},
		{"/usr/bin/cat", "/kind/version", v.Kubernetes},
	} {
		require.Contains(t, docker(t, "run", "--rm", "--network=none", "--entrypoint="+c.program, name, c.arg), c.says, c.program)
	}
}

// built says whether the cache has all that the image is made of.
func built(t *testing.T, o Options) bool {
	b, err := newBuilder(t.Context(), o)
	require.NoError(t, err)
	for _, s := range b.plan().steps() {
		if _, err := os.Stat(filepath.Join(b.Cache, s.folder())); err != nil {
			return false
		}
	}
	return true
}

func docker(t *testing.T, args ...string) string {
	out, err := exec.CommandContext(t.Context(), "docker", args...).CombinedOutput()
	require.NoError(t, err, "docker %v: %s", args, out)
	return string(out)
}
