package image

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	storeName = "store"
	// baseSpec is the file, in the folder of the step store, with what
	// containerd starts a container from.
	baseSpec = "cri-base.json"
	// storeDir is where containerd of a node keeps its images.
	storeDir = "var/lib/containerd"
	// contentDir holds what containerd was given, in a file per hash.
	contentDir = storeDir + "/io.containerd.content.v1.content/blobs/sha256"
)

// storeStep is the layer with the images that a node starts with, unpacked in
// the store of its containerd. The containerd that will read the store writes
// it: the one of the Debian layer, in a folder as root and mounts of its own.
// The store holds times, so this layer alone differs from build to build.
func (b *builder) storeStep(p plan) step {
	inputs, at := []string{runtime.GOARCH, code(), p.debian.key()}, map[string]string{}
	for _, name := range []string{"kube", "etcd", "coredns", "pause"} {
		s := p.program(name)
		inputs = append(inputs, s.key())
		at[name] = b.at(s, name)
	}
	debian := b.at(p.debian, layerFile)
	return step{name: storeName, about: 40 * time.Second, inputs: inputs, make: func(ctx context.Context, dir string) error {
		work := filepath.Join(dir, "work")
		root := filepath.Join(work, "root")
		if err := os.MkdirAll(root, 0o755); err != nil {
			return err
		}
		if err := (program{}).run(ctx, "tar", "--numeric-owner", "-xpf", debian, "-C", root); err != nil {
			return err
		}
		images := filepath.Join(root, "images.tar")
		layers, err := writeKubeImages(images, work, b.versions, at, root)
		if err != nil {
			return err
		}
		if err := importImages(ctx, root, layers); err != nil {
			return err
		}
		if err := writeBaseSpec(ctx, root, filepath.Join(dir, baseSpec)); err != nil {
			return err
		}
		entries, err := entriesOf(filepath.Join(root, storeDir), storeDir)
		if err != nil {
			return err
		}
		if err := writeLayer(filepath.Join(dir, layerFile), entries); err != nil {
			return err
		}
		return os.RemoveAll(work)
	}}
}

// storeConfig is that of the containerd that fills the store. The parts that
// serve a kubelet need a network and are left out.
const storeConfig = `version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "/run/store.sock"
`

// importImages unpacks /images.tar of the root into the store in it, and
// removes the layers as they came: the unpacked ones are enough, and every node
// gets a copy of the store.
func importImages(ctx context.Context, root string, layers []string) error {
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "dev"), 0o755), os.MkdirAll(filepath.Join(root, "proc"), 0o755),
		os.WriteFile(filepath.Join(root, "store.toml"), []byte(storeConfig), 0o644)); err != nil {
		return err
	}
	stop, err := startContainerd(ctx, root)
	if err != nil {
		return err
	}
	ctr := func(args ...string) error {
		return program{}.run(ctx, "chroot", append([]string{root, "ctr", "-a", "/run/store.sock", "-n", "k8s.io"}, args...)...)
	}
	err = ctr("images", "import", "/images.tar")
	if err == nil {
		err = ctr(append([]string{"content", "rm"}, layers...)...)
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	// containerd removes the files some time after their names.
	for _, l := range layers {
		err = errors.Join(err, os.RemoveAll(filepath.Join(root, contentDir, strings.TrimPrefix(l, "sha256:"))))
	}
	return err
}

// startContainerd starts the containerd of a root and waits until it listens.
func startContainerd(ctx context.Context, root string) (stop func() error, err error) {
	// The mounts of unpacking are seen by this process alone, and are gone with
	// it, however it ends.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--root="+root, "--mount-proc", "containerd", "--config", "/store.toml", "--log-level", "warn")
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = graceTime
	cmd.SysProcAttr = diesWithUs()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means it has ended, and says why below
		if err := <-ended; err != nil {
			return fmt.Errorf("containerd: %w%s", err, said.quote())
		}
		return nil
	}
	for range 100 {
		if conn, err := net.Dial("unix", filepath.Join(root, "run/store.sock")); err == nil {
			return stop, conn.Close()
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("containerd ended at once: %v%s", err, said.quote())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, errors.Join(errors.New("containerd does not listen after 10 s"), stop())
}

// writeBaseSpec writes what containerd starts every container from: its own
// default but for the limit of 1024 open files, which containers then have from
// the node.
func writeBaseSpec(ctx context.Context, root, file string) error {
	var out bytes.Buffer
	if err := (program{stdout: &out}).run(ctx, "chroot", root, "ctr", "oci", "spec"); err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(out.Bytes(), &spec); err != nil {
		return fmt.Errorf("read containerd's default for containers: %w", err)
	}
	process, _ := spec["process"].(map[string]any)
	if process == nil {
		return errors.New("containerd's default for containers has no process")
	}
	delete(process, "rlimits")
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
