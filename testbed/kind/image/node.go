package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"
)

// nodeStep is the layer over Debian: kind's files, our configuration and the
// programs that run outside of containers.
func (b *builder) nodeStep(p plan) step {
	inputs := []string{runtime.GOARCH, code(), p.debian.key(), p.store.key(), p.program("kind").key(), p.program("kube").key(), p.program("cni").key(),
		string(embedded("node/config.toml")), string(embedded("node/cni.template")), string(embedded("node/podnet.service"))}
	return step{name: "node", about: 5 * time.Second, inputs: inputs, make: func(_ context.Context, dir string) error {
		entries, err := b.nodeEntries(p)
		if err != nil {
			return err
		}
		exist, err := namesIn(b.at(p.debian, layerFile))
		if err != nil {
			return err
		}
		if entries, err = withParents(entries, exist); err != nil {
			return err
		}
		return writeLayer(filepath.Join(dir, layerFile), entries)
	}}
}

// units are what systemd starts on a node.
var units = []string{"containerd.service", "kubelet.service", "podnet.service", "undo-mount-hacks.service"}

func (b *builder) nodeEntries(p plan) ([]entry, error) {
	entries, err := kindEntries(b.at(p.program("kind"), ""))
	if err != nil {
		return nil, err
	}
	for file, name := range map[string]string{
		"node/config.toml":    "etc/containerd/config.toml",
		"node/podnet.service": "etc/systemd/system/podnet.service",
	} {
		text, err := fill(file, b.versions)
		if err != nil {
			return nil, err
		}
		entries = append(entries, config(name, text))
	}
	entries = append(entries,
		entry{name: "etc/containerd/cri-base.json", mode: 0o644, file: b.at(p.store, baseSpec)},
		config("etc/containerd/cni.template", string(embedded("node/cni.template"))),
		// The kernel's log is the host's, and would confuse.
		config("etc/systemd/journald.conf.d/node.conf", "[Journal]\nReadKMsg=no\n"),
		config("kind/version", b.versions.Kubernetes),
		folder("etc/cni/net.d"), folder("etc/kubernetes/manifests"), folder("kind/manifests"),
		// Where kind's files look for them.
		link("usr/local/bin/containerd", "/usr/bin/containerd"), link("usr/local/bin/ctr", "/usr/bin/ctr"),
		// This one would change the host's kernel.
		link("etc/systemd/system/systemd-binfmt.service", "/dev/null"),
		binary("usr/bin/kube", b.at(p.program("kube"), "kube")),
	)
	for _, c := range []string{"kubelet", "kubeadm", "kubectl"} {
		entries = append(entries, link("usr/bin/"+c, "kube"))
	}
	for _, u := range units {
		entries = append(entries, link("etc/systemd/system/multi-user.target.wants/"+u, "/etc/systemd/system/"+u))
	}
	plugins, err := os.ReadDir(b.at(p.program("cni"), ""))
	if err != nil {
		return nil, err
	}
	for _, f := range plugins {
		entries = append(entries, binary("opt/cni/bin/"+f.Name(), b.at(p.program("cni"), f.Name())))
	}
	return entries, nil
}

// withoutKind are files of kind that ours take the place of, and what is for
// rootless Docker and for building images.
var withoutKind = []string{"etc/containerd/config.toml", "etc/systemd/system/containerd-fuse-overlayfs.service", "usr/local/bin/clean-install"}

// kindEntries are the files of kind's own node image.
func kindEntries(dir string) ([]entry, error) {
	all, err := entriesOf(dir, "")
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, e := range all {
		if e.mode.IsDir() || slices.Contains(withoutKind, e.name) {
			continue
		}
		e.mode = 0o644
		if strings.HasPrefix(e.name, "kind/bin/") || strings.HasPrefix(e.name, "usr/local/bin/") {
			e.mode = 0o755
		}
		if e.name == "usr/local/bin/entrypoint" {
			text, err := os.ReadFile(e.file)
			if err != nil {
				return nil, err
			}
			if e.text, err = openCgroups(text); err != nil {
				return nil, err
			}
			e.file = ""
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// cgroupLine makes the control groups writable before anything else happens: a
// container that is not --privileged, which needs capabilities that not every
// host's root has, gets them read-only.
const cgroupLine = "set -o pipefail\nfor m in $(findmnt -lun -o target -t cgroup,cgroup2); do mount -o remount,rw,bind \"$m\"; done\n"

// openCgroups puts cgroupLine into kind's entrypoint.
func openCgroups(entrypoint []byte) ([]byte, error) {
	const place = "set -o pipefail\n"
	if !bytes.Contains(entrypoint, []byte(place)) {
		return nil, errors.New("kind's entrypoint has no line 'set -o pipefail', after which ours belongs")
	}
	return bytes.Replace(entrypoint, []byte(place), []byte(cgroupLine), 1), nil
}

// fill completes a configuration with what other parts of this package know.
func fill(file string, v Versions) (string, error) {
	t, err := template.New(file).Option("missingkey=error").Parse(string(embedded(file)))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]string{"Pause": v.Pause, "PodSubnet": PodSubnet, "Repository": Repository})
	return out.String(), err
}
