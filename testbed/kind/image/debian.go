package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const debianName = "debian"

var debianOptions = []string{"--variant=minbase", "--mode=root", "--skip=check/empty", "--format=tar", `--aptopt=APT::Install-Recommends "false"`}

// debianEnv: the epoch makes all files as old as the first of them may be, so
// that the same packages are the same layer; Debian's own programs serve
// whatever others the user's path has.
var debianEnv = []string{"SOURCE_DATE_EPOCH=0", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}

// withoutDebian are paths, and with a slash at the end what is below them,
// that do not get into the image: what no node reads, traces of this machine,
// and units of systemd that are of no use in a container.
var withoutDebian = []string{
	"usr/share/man/", "usr/share/doc/", "usr/share/info/", "usr/share/locale/",
	"etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/lib/dbus/machine-id",
	"var/cache/", "var/log/", "var/lib/apt/lists/", "dev/", "proc/", "sys/",
	"usr/bin/containerd-shim", "usr/bin/containerd-shim-runc-v1", "usr/bin/containerd-stress",
	"usr/lib/systemd/system/multi-user.target.wants/", "usr/lib/systemd/system/local-fs.target.wants/",
	"usr/lib/systemd/system/basic.target.wants/",
	"usr/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
	"usr/lib/systemd/system/sockets.target.wants/systemd-udevd-control.socket",
	"usr/lib/systemd/system/sockets.target.wants/systemd-udevd-kernel.socket",
	"usr/lib/systemd/system/sockets.target.wants/systemd-initctl.socket",
}

func left(name string) bool {
	for _, out := range withoutDebian {
		if name == out || strings.HasSuffix(out, "/") && strings.HasPrefix(name, out) {
			return true
		}
	}
	// Units that packages enabled: the image enables its own.
	dir, _, _ := strings.Cut(strings.TrimPrefix(name, "etc/systemd/system/"), "/")
	return dir != name && strings.HasSuffix(dir, ".wants") && strings.HasPrefix(name, "etc/systemd/system/"+dir+"/")
}

// debianStep is the lowest layer of a node: a Debian with the pinned packages.
func (b *builder) debianStep() step {
	d := b.versions.Debian
	args := append(append([]string{}, debianOptions...), "--include="+strings.Join(d.Packages, ","), d.Suite, "-")
	if b.Mirror != "" {
		args = append(args, b.Mirror)
	}
	inputs := append(append([]string{runtime.GOARCH}, args...), withoutDebian...)
	return step{name: debianName, about: 60 * time.Second, inputs: inputs, make: func(ctx context.Context, dir string) error {
		work := filepath.Join(dir, "work")
		if err := os.Mkdir(work, 0o755); err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(dir, layerFile))
		if err != nil {
			return err
		}
		r, w := io.Pipe()
		filtered := make(chan error, 1)
		go func() {
			err := filterDebian(r, f)
			r.CloseWithError(err)
			filtered <- err
		}()
		// What it mounts is seen by it alone and gone with it, so that nothing of
		// this machine is below the folder when that is removed.
		run := program{stdout: w, env: append([]string{"TMPDIR=" + work}, debianEnv...)}.run(ctx, "unshare", append([]string{"--mount", "mmdebstrap"}, args...)...)
		w.CloseWithError(run)
		return errors.Join(run, <-filtered, f.Close(), os.RemoveAll(work))
	}}
}

// filterDebian copies a tar without what the image has no use for.
func filterDebian(from io.Reader, to io.Writer) error {
	r, w := tar.NewReader(from), tar.NewWriter(to)
	for {
		h, err := r.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, from) // the writer pads beyond the end
			return errors.Join(err, w.Close())
		}
		if err != nil {
			return fmt.Errorf("read Debian's files: %w", err)
		}
		if left(cleanName(h.Name)) {
			continue
		}
		h.Name = strings.TrimPrefix(h.Name, "./")
		if h.Name == "" {
			continue // the root itself
		}
		if err := w.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s: %w", h.Name, err)
		}
		if _, err := io.Copy(w, r); err != nil {
			return fmt.Errorf("write %s: %w", h.Name, err)
		}
	}
}

func checkDebian() error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return errors.New("mmdebstrap, which installs Debian into a folder, is missing: apt-get install mmdebstrap, or let 'heartbed image build --install' do it")
	}
	return nil
}

// Install installs the programs that a build needs with the machine's apt.
func Install(ctx context.Context) error {
	if checkDebian() == nil {
		return nil
	}
	apt := program{env: []string{"DEBIAN_FRONTEND=noninteractive"}}
	if err := apt.run(ctx, "apt-get", "update", "-q"); err != nil {
		return err
	}
	return apt.run(ctx, "apt-get", "install", "-q", "-y", "mmdebstrap")
}
