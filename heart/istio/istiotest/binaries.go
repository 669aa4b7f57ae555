// Package istiotest starts a Kubernetes API server, and an istiod on it, as
// plain processes for tests: no container, no kubelet, no root. Nothing runs
// pods there; a test writes pods and endpoints itself and serves them from its
// own process.
package istiotest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"heartbed/internal/cachedir"
)

// Version of the module istio.io/istio from which istiod is built and whose
// CustomResourceDefinitions are used.
const Version = "v0.0.0-20260827124520-eed52ebb66ad"

const pilot = "istio.io/istio/pilot/cmd/pilot-discovery"

// program finds a binary in the cache: the newest, where there are several. An
// error wraps errors.ErrUnsupported and says what would build it.
func program(pattern, build string) (string, error) {
	cache, err := cachedir.Find()
	if err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(cache, pattern))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no %s in the cache folder: run %s", errors.ErrUnsupported, pattern, build)
	}
	age := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0 // gone: any other is newer
		}
		return info.ModTime().UnixNano()
	}
	return slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(age(a), age(b)) }), nil
}

const (
	buildImage  = "heartbed image build"
	buildIstiod = "go run ./heart/istio/istiotest/build"
)

func istiod() (string, error) { return program("istiod-"+Version+"/pilot-discovery", buildIstiod) }

// BuildIstiod builds istiod into the cache, unless it is there, and gives its
// path. It takes ten minutes of CPU time from empty caches; what the Go command
// has compiled is kept when it is interrupted.
func BuildIstiod(ctx context.Context, progress io.Writer) (string, error) {
	if at, err := istiod(); err == nil || !errors.Is(err, errors.ErrUnsupported) {
		return at, err
	}
	cache, err := cachedir.Find()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "istiod-"+Version)
	scratch, err := os.MkdirTemp("", "heartbed-istiod-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(scratch, "go.mod"), []byte("module istiod\n\ngo 1.26.0\n"), 0o644)); err != nil {
		return "", err
	}
	at := filepath.Join(dir, "pilot-discovery")
	for _, args := range [][]string{
		{"get", "-tool", pilot + "@" + Version},
		{"build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", at + ".part", pilot},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = scratch, progress, progress
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("go %v: %w", args, err)
		}
	}
	return at, os.Rename(at+".part", at)
}

// Definitions names the file of Istio's CustomResourceDefinitions, which is
// fetched when the module cache lacks it.
func Definitions(ctx context.Context) (file string, err error) {
	dir, err := module(ctx)
	return filepath.Join(dir, "manifests", "charts", "base", "files", "crd-all.gen.yaml"), err
}

// module gives the folder of the module istio.io/istio, which is fetched when
// the module cache lacks it.
func module(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("%w: go env GOMODCACHE: %w", errors.ErrUnsupported, err)
	}
	dir := filepath.Join(string(out[:len(out)-1]), "istio.io", "istio@"+Version)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if out, err := exec.CommandContext(ctx, "go", "mod", "download", "istio.io/istio@"+Version).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: fetch the module istio.io/istio, which has the CustomResourceDefinitions: %w\n%s", errors.ErrUnsupported, err, out)
	}
	return dir, nil
}
