package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

var update = flag.Bool("update", false, "bring modules/ in line with versions.yaml (needs the module proxy)")

func TestHashTellsListsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab"}, {"a", "b"}, {"a\n1 b"}, {"1 a\n"}} {
		h := hash(parts...)
		require.NotContains(t, seen, h, "%q and %q", parts, seen[h])
		require.Equal(t, h, hash(parts...))
		seen[h] = parts
	}
}

// Every version has its shape, and each module pins what versions.yaml says
// with a hash in its go.sum.
func TestPins(t *testing.T) {
	v := Pinned()
	pins := map[string][2]string{
		"kube": {"k8s.io/kubernetes", v.Kubernetes}, "kube/newest": {"k8s.io/kubernetes", v.NewestKubernetes}, "etcd": {"go.etcd.io/etcd/server/v3", v.Etcd},
		"coredns": {"github.com/coredns/coredns", v.CoreDNS}, "cni": {"github.com/containernetworking/plugins", v.CNI},
		"kind": {"sigs.k8s.io/kind", v.Kind}, "prometheus": {"github.com/prometheus/prometheus", v.Prometheus},
		"metrics-server": {"sigs.k8s.io/metrics-server", v.MetricsServer},
	}
	for name, pin := range pins {
		if *update {
			repin(t, name, pin[0], pin[1])
			continue
		}
		require.Regexp(t, `^v\d+\.\d+\.\d+$`, pin[1], name)
		mod := string(embedded("modules/" + name + "/go.mod.txt"))
		require.Contains(t, mod, pin[0]+" "+pin[1], name)
		require.Contains(t, string(embedded("modules/"+name+"/go.sum.txt")), pin[0]+" "+pin[1]+" h1:", name)
	}
	require.Regexp(t, `^\d+\.\d+\.\d+$`, v.Pause)
	require.Regexp(t, `^kindest/node:v1\.34\.\d+@sha256:[0-9a-f]{64}$`, v.Published)
	require.True(t, strings.HasPrefix(v.Kubernetes, "v1.34."), "with %s a node does not start on cgroup v1: see versions.yaml", v.Kubernetes)
	for dir, version := range map[string]string{"kube": v.Kubernetes, "kube/newest": v.NewestKubernetes} {
		for _, m := range regexp.MustCompile(`(?m)^\s*k8s\.io/\S+ => \S+ (\S+)$`).FindAllStringSubmatch(string(embedded("modules/"+dir+"/go.mod.txt")), -1) {
			require.Equal(t, "v0"+strings.TrimPrefix(version, "v1"), m[1], m[0])
		}
	}
	root, err := os.ReadFile("../../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(root), "sigs.k8s.io/kind "+v.Kind, "the base files are those of the library that starts the nodes")
}

// repin writes a module's go.mod and go.sum for a version.
func repin(t *testing.T, name, of, version string) {
	scratch, dir := t.TempDir(), filepath.Join("modules", name)
	base, pins, _ := strings.Cut(name, "/")
	for file, text := range (module{name: base, pins: pins}).sources() {
		require.NoError(t, os.WriteFile(filepath.Join(scratch, file), text, 0o644))
	}
	goCommand := func(args ...string) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = scratch, append(os.Environ(), goEnv...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", cmd, out)
	}
	mod, err := os.ReadFile(filepath.Join(scratch, "go.mod"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(k8s\.io/\S+) => k8s\.io/`).FindAllSubmatch(mod, -1) {
		goCommand("mod", "edit", "-replace="+string(m[1])+"="+string(m[1])+"@v0"+strings.TrimPrefix(version, "v1"))
	}
	goCommand("mod", "edit", "-require="+of+"@"+version)
	goCommand("mod", "tidy")
	for _, f := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(scratch, f))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, f+".txt"), text, 0o644))
	}
}

func TestVersionsRefusesWhatItDoesNotKnow(t *testing.T) {
	_, err := parseVersions([]byte("kubernetes: v1.34.4\nkubernets: v1\n"))
	require.ErrorContains(t, err, "kubernets")
}

// The steps of a plan are known by what goes in: a change of one input changes
// it and what is made of it, and nothing else.
func TestPlanFollowsInputs(t *testing.T) {
	plan := func(change func(*builder)) map[string]string {
		b := &builder{Options: Options{Cache: "/c"}, versions: Pinned(), goTool: "go1"}
		change(b)
		folders := map[string]string{}
		for _, s := range b.plan().steps() {
			folders[s.name] = s.folder()
		}
		return folders
	}
	base := plan(func(*builder) {})
	require.Equal(t, base, plan(func(*builder) {}))
	require.Len(t, base, 9)
	for name, c := range map[string]struct {
		change  func(*builder)
		changes []string
	}{
		"go":         {func(b *builder) { b.goTool = "go2" }, []string{"kind", "pause", "cni", "etcd", "coredns", "kube", "store", "node"}},
		"kubernetes": {func(b *builder) { b.versions.Kubernetes = "v1.34.5" }, []string{"kube", "store", "node"}},
		"suite":      {func(b *builder) { b.versions.Debian.Suite = "trixie" }, []string{"debian", "store", "node"}},
		"mirror":     {func(b *builder) { b.Mirror = "http://mirror" }, []string{"debian", "store", "node"}},
		"progress":   {func(b *builder) { b.Progress = io.Discard }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var changed []string
			for step, folder := range plan(c.change) {
				if folder != base[step] {
					changed = append(changed, step)
				}
			}
			require.ElementsMatch(t, c.changes, changed)
		})
	}
}

func TestLayerIsTheSameTwice(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte("x"), 0o600))
	entries := []entry{binary("usr/bin/p", source), link("usr/bin/q", "p"), config("etc/f", "text"), folder("run")}
	write := func(name string, order ...int) []byte {
		var shuffled []entry
		for _, i := range order {
			shuffled = append(shuffled, entries[i])
		}
		all, err := withParents(shuffled, map[string]bool{"etc": true})
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, writeLayer(file, all))
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		return raw
	}
	one := write("one.tar", 0, 1, 2, 3)
	require.NoError(t, os.Chtimes(source, time.Now(), time.Now().Add(time.Hour)))
	require.Equal(t, one, write("two.tar", 3, 1, 0, 2))
	var names []string
	for r := tar.NewReader(bytes.NewReader(one)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.Zero(t, h.Uid+h.Gid)
		require.True(t, h.ModTime.Equal(epoch))
		names = append(names, h.Name)
	}
	require.Equal(t, []string{"etc/f", "run/", "usr/", "usr/bin/", "usr/bin/p", "usr/bin/q"}, names)

	_, err := withParents(append(entries, config("etc/f", "other")), nil)
	require.ErrorContains(t, err, "etc/f is in the layer twice")
}

func TestDebianWithoutWhatANodeHasNoUseFor(t *testing.T) {
	for name, want := range map[string]bool{
		"usr/bin/containerd": false, "usr/bin/containerd-shim-runc-v2": false, "etc/systemd/system": false,
		"etc/systemd/system/dbus.service": false, "etc/systemd/system/multi-user.target.wants": false, "dev": false, "var/log": false,
		"etc/systemd/system/multi-user.target.wants/containerd.service": true, "var/log/dpkg.log": true, "dev/null": true,
		"etc/hostname": true, "usr/bin/containerd-stress": true, "usr/lib/systemd/system/basic.target.wants/x.mount": true,
	} {
		require.Equal(t, want, left(name), name)
	}
}

// What a tar's writer pads it with beyond its end is read, too: mmdebstrap would
// fail otherwise.
func TestFilterDebianReadsToTheEnd(t *testing.T) {
	var from bytes.Buffer
	w := tar.NewWriter(&from)
	for _, name := range []string{"./", "./etc/", "./etc/hostname", "./etc/passwd", "./usr/share/doc/x"} {
		h := &tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeReg}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		require.NoError(t, w.WriteHeader(h))
	}
	require.NoError(t, w.Close())
	from.Write(make([]byte, 1<<20))
	file := filepath.Join(t.TempDir(), "filtered.tar")
	to, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, filterDebian(&from, to))
	require.NoError(t, to.Close())
	require.Zero(t, from.Len())
	names, err := namesIn(file)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"etc": true, "etc/passwd": true}, names)
}

// The image runs systemd as Docker's process 1, and is found again by what it
// was made of.
func TestNodeConfig(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(dir, name)
		require.NoError(t, writeLayer(file, []entry{config(name, name)}))
		files = append(files, file)
	}
	img, err := nodeImage("1234", files...)
	require.NoError(t, err)
	c, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, []string{"/usr/local/bin/entrypoint", "/sbin/init"}, c.Config.Entrypoint)
	require.Equal(t, "SIGRTMIN+3", c.Config.StopSignal)
	require.Contains(t, c.Config.Env, "container=docker")
	require.Equal(t, "1234", c.Config.Labels[inputsLabel])
	again, err := nodeImage("1234", files...)
	require.NoError(t, err)
	require.Equal(t, digest(t, img), digest(t, again))
	other, err := nodeImage("5678", files...)
	require.NoError(t, err)
	require.NotEqual(t, digest(t, img), digest(t, other))
}

func digest(t *testing.T, img Image) string {
	h, err := img.Digest()
	require.NoError(t, err)
	return h.String()
}

func TestEntrypointOpensCgroupsFirst(t *testing.T) {
	got, err := openCgroups([]byte("#!/bin/bash\nset -o pipefail\nfirst\nset -o pipefail\n"))
	require.NoError(t, err)
	require.Regexp(t, `(?s)^#!/bin/bash\nset -o pipefail\nfor m in .*rw,bind.*\nfirst\nset -o pipefail\n$`, string(got))
	_, err = openCgroups([]byte("#!/bin/sh\n"))
	require.ErrorContains(t, err, "pipefail")
}

func TestConfigurationIsFilledIn(t *testing.T) {
	v := Pinned()
	text, err := fill("node/config.toml", v)
	require.NoError(t, err)
	require.Contains(t, text, `sandbox_image = "`+Repository+"/pause:"+v.Pause+`"`)
	text, err = fill("node/podnet.service", v)
	require.NoError(t, err)
	require.Contains(t, text, "route replace "+PodSubnet+" dev eth0")
	require.NotContains(t, text, "{{")
}

func TestDockerErrorsSayWhatMends(t *testing.T) {
	for said, want := range map[string]string{
		"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?":         "systemctl start docker",
		"permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get": "usermod -aG docker",
		"something else": "ask Docker for its version",
	} {
		err := dockerError(errors.New(said))
		require.ErrorContains(t, err, want)
		require.Equal(t, said != "something else", errors.Is(err, errors.ErrUnsupported))
	}
	require.NoError(t, dockerError(nil))
}

// An interrupted step leaves nothing under its name, and is made the next time.
func TestInterruptedStepIsMadeAgain(t *testing.T) {
	b := &builder{Options: Options{Cache: t.TempDir(), Progress: io.Discard}}
	ctx, cancel := context.WithCancel(t.Context())
	half := step{name: "half", inputs: []string{"x"}, make: func(ctx context.Context, dir string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("part"), 0o644))
		cancel()
		return program{}.run(ctx, "sleep", "60")
	}}
	begin := time.Now()
	err := b.makeStep(ctx, half)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "interrupted in step half")
	require.Less(t, time.Since(begin), graceTime)
	remains, err := os.ReadDir(b.Cache)
	require.NoError(t, err)
	require.Empty(t, remains)

	half.make = func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, "f"), []byte("all"), 0o644)
	}
	require.NoError(t, b.makeStep(t.Context(), half))
	text, err := os.ReadFile(filepath.Join(b.Cache, half.folder(), "f"))
	require.NoError(t, err)
	require.Equal(t, "all", string(text))
}

func TestPruneKeepsWhatIsInUse(t *testing.T) {
	cache := t.TempDir()
	s := step{name: "kube", inputs: []string{"now"}}
	old, recent := step{name: "kube", inputs: []string{"old"}}, step{name: "kube", inputs: []string{"recent"}}
	for _, name := range []string{s.folder(), old.folder(), recent.folder(), "kubernetes-notes", unfinished + "x"} {
		require.NoError(t, os.Mkdir(filepath.Join(cache, name), 0o755))
		past := time.Now().Add(-2 * keepUnused)
		if name != recent.folder() {
			require.NoError(t, os.Chtimes(filepath.Join(cache, name), past, past))
		}
	}
	require.NoError(t, prune(cache, []step{s}))
	for name, kept := range map[string]bool{s.folder(): true, recent.folder(): true, old.folder(): false, "kubernetes-notes": true, unfinished + "x": false} {
		if kept {
			require.DirExists(t, filepath.Join(cache, name))
		} else {
			require.NoDirExists(t, filepath.Join(cache, name))
		}
	}
}

// Programs of this machine, as an image: the same bytes each time, and a dynamic
// one runs in it.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o644))
	hello := filepath.Join(dir, "hello")
	build := exec.Command("go", "build", "-o", hello, source)
	build.Env = append(os.Environ(), goEnv...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	one, err := Programs(t.TempDir(), hello)
	require.NoError(t, err)
	cache := t.TempDir()
	two, err := Programs(cache, hello)
	require.NoError(t, err)
	require.Equal(t, one.Name, two.Name)
	a, err := os.ReadFile(one.File)
	require.NoError(t, err)
	b, err := os.ReadFile(two.File)
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, b))

	img, err := tarball.ImageFromPath(two.File, nil)
	require.NoError(t, err)
	require.NoError(t, validate.Image(img))
	layers, err := img.Layers()
	require.NoError(t, err)
	r, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer r.Close()
	content := tar.NewReader(r)
	for _, want := range []struct {
		name string
		mode int64
	}{{"hello", 0o755}, {"tmp/", 0o1777}} {
		h, err := content.Next()
		require.NoError(t, err)
		require.Equal(t, want.name, h.Name)
		require.Equal(t, want.mode, h.Mode)
	}
	_, err = Programs(cache, source)
	require.ErrorContains(t, err, "main.go")

	testbedtest.Require(t, "kind", Check(t.Context()))
	dynamic, err := Programs(cache, hello, "/bin/sh")
	require.NoError(t, err)
	img, err = tarball.ImageFromPath(dynamic.File, nil)
	require.NoError(t, err)
	require.NoError(t, loadImage(t.Context(), dynamic.Name, img))
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", dynamic.Name).Run() })
	said, err := exec.CommandContext(t.Context(), "docker", "run", "--rm", "--network=none", dynamic.Name, "/sh", "-c", "/hello; exit 3").CombinedOutput()
	require.ErrorContains(t, err, "3")
	require.Equal(t, "hello\n", string(said))
}
