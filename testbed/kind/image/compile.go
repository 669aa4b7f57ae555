package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// module is a scratch module from which static programs are built: its go.mod
// and go.sum pin every module down to the hash.
type module struct {
	name    string
	about   time.Duration
	pkg     string // what to build: a package, or "tool" for those that go.mod names
	ldflags string // besides those that leave out symbols
	tags    string // build constraints that hold
	copies  string // module to copy files from, instead of building
	pins    string // folder with other pins than the module's own; "" = none
}

func (b *builder) modules() []module {
	kube := module{name: "kube", about: 390 * time.Second, pkg: ".", ldflags: kubeVersion(b.versions.Kubernetes)}
	if b.Newest {
		kube.pins = "newest"
	}
	return []module{
		{name: "kind", about: 5 * time.Second, copies: "sigs.k8s.io/kind"},
		{name: "pause", about: 5 * time.Second, pkg: "."},
		{name: "cni", about: 20 * time.Second, pkg: "tool"},
		{name: "etcd", about: 45 * time.Second, pkg: "go.etcd.io/etcd/server/v3"},
		{name: "coredns", about: 75 * time.Second, pkg: "."},
		kube,
	}
}

// kubeVersion makes the commands tell their version, which kubeadm compares.
func kubeVersion(version string) string {
	numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range [][2]string{
			{"gitVersion", version}, {"gitMajor", numbers[0]}, {"gitMinor", numbers[1]}, {"gitTreeState", "clean"},
			{"buildDate", "2026-01-01T00:00:00Z"}, // fixed: the same binary every time
		} {
			flags = append(flags, "-X "+pkg+"."+v[0]+"="+v[1])
		}
	}
	return strings.Join(flags, " ")
}

// compile is the step that builds a module's programs.
func (b *builder) compile(m module) step {
	inputs := []string{b.goTool, runtime.GOARCH, m.pkg, m.ldflags, m.copies}
	if m.tags != "" {
		inputs = append(inputs, m.tags)
	}
	texts := m.sources()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		inputs = append(inputs, name+".txt", string(texts[name]))
	}
	return step{name: m.name, about: m.about, inputs: inputs, make: func(ctx context.Context, out string) error {
		scratch, err := os.MkdirTemp("", "heartbed-"+m.name+"-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(scratch)
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(scratch, name), text, 0o644); err != nil {
				return err
			}
		}
		goCommand := program{dir: scratch, env: goEnv}
		if m.copies != "" {
			return copyModule(ctx, goCommand, m.copies, out)
		}
		if m.pkg != "tool" {
			out = filepath.Join(out, m.name)
		}
		return goCommand.run(ctx, "go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath",
			"-tags", m.tags, "-ldflags", strings.TrimSpace("-s -w "+m.ldflags), "-o", out, m.pkg)
	}}
}

// sources are the files of the scratch module by name.
func (m module) sources() map[string][]byte {
	texts := map[string][]byte{}
	for _, dir := range []string{path.Join("modules", m.name), path.Join("modules", m.name, m.pins)} {
		found, err := fs.ReadDir(files, dir)
		if err != nil {
			panic(err) // part of the program
		}
		for _, f := range found {
			if !f.IsDir() {
				texts[strings.TrimSuffix(f.Name(), ".txt")] = embedded(path.Join(dir, f.Name()))
			}
		}
	}
	return texts
}

// goEnv makes a build independent of the user's settings, but for the proxy.
var goEnv = []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + runtime.GOARCH, "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on"}

func goVersion(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", errors.New("the go command, which builds the programs of the node image, is not installed")
	}
	return output(ctx, "", goEnv, "go", "env", "GOVERSION")
}

// baseFiles is where kind's module keeps the files of a node image.
const baseFiles = "images/base/files"

// copyModule fetches a module and copies the files of a node image out of it.
func copyModule(ctx context.Context, goCommand program, module, out string) error {
	if err := goCommand.run(ctx, "go", "mod", "download", module); err != nil {
		return err
	}
	dir, err := output(ctx, goCommand.dir, goCommand.env, "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	if err := os.CopyFS(out, os.DirFS(filepath.Join(dir, baseFiles))); err != nil {
		return fmt.Errorf("copy the node files of %s: %w", module, err)
	}
	return nil
}
