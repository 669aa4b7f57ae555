package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// kubeImage is an image that a node starts with: its layers by name, lowest
// first. Images share layers, so that the one of 150 MB is there once.
type kubeImage struct {
	tag        string
	entrypoint string
	layers     []string
}

func kubeImages(v Versions) []kubeImage {
	images := []kubeImage{
		{"pause:" + v.Pause, "/pause", []string{"pause"}},
		{"etcd:" + v.Etcd, "/usr/local/bin/etcd", []string{"etcd"}},
		{"coredns:" + v.CoreDNS, "/coredns", []string{"coredns"}},
		{"kube-proxy:" + v.Kubernetes, "/usr/local/bin/kube-proxy", []string{"kube", "tables"}},
	}
	for _, c := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		images = append(images, kubeImage{c + ":" + v.Kubernetes, "/usr/local/bin/" + c, []string{"kube"}})
	}
	return images
}

// writeKubeImages writes the archive of all images that a node starts with. at
// holds the programs, root a Debian that kube-proxy's tools
// come from. It gives the hashes of the layers.
func writeKubeImages(archive, dir string, v Versions, at map[string]string, root string) ([]string, error) {
	tables, err := tablesEntries(root)
	if err != nil {
		return nil, err
	}
	kube := []entry{binary("usr/local/bin/kube", at["kube"])}
	for _, c := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		kube = append(kube, link("usr/local/bin/"+c, "kube"))
	}
	contents := map[string][]entry{
		"pause":   {binary("pause", at["pause"])},
		"etcd":    {binary("usr/local/bin/etcd", at["etcd"])},
		"coredns": {binary("coredns", at["coredns"])},
		"kube":    kube,
		"tables":  tables,
	}
	layers := map[string]*layer{}
	var hashes []string
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		entries, err := withParents(contents[name], nil)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, name+".tar")
		if err := writeLayer(file, entries); err != nil {
			return nil, err
		}
		if layers[name], err = openLayer(file); err != nil {
			return nil, err
		}
		hashes = append(hashes, layers[name].hash.String())
	}
	images := map[string]Image{}
	for _, k := range kubeImages(v) {
		var below []v1.Layer
		for _, name := range k.layers {
			below = append(below, layers[name])
		}
		img, err := makeImage(v1.Config{Env: []string{searchPath}, Entrypoint: []string{k.entrypoint}, WorkingDir: "/"}, below...)
		if err != nil {
			return nil, err
		}
		images[Repository+"/"+k.tag] = img
	}
	return hashes, writeArchive(archive, images)
}

// tablesEntries are the programs with which kube-proxy writes its rules, out
// of a Debian, and the libraries that they load.
func tablesEntries(root string) ([]entry, error) {
	entries := []entry{link("bin", "usr/bin"), link("sbin", "usr/sbin"), folder("usr/bin"), folder("run")}
	programs := []string{"usr/sbin/nft", "usr/sbin/xtables-nft-multi", "usr/sbin/xtables-legacy-multi", "usr/sbin/conntrack"}
	libraries := libraryDir()
	plugins, err := fs.Glob(os.DirFS(root), libraries+"/xtables/*.so")
	if err != nil || len(plugins) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no plugins of iptables in %s", libraries))
	}
	for _, tool := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			entries = append(entries, link("usr/sbin/"+tool+suffix, "xtables-nft-multi"),
				link("usr/sbin/"+tool+"-nft"+suffix, "xtables-nft-multi"),
				link("usr/sbin/"+tool+"-legacy"+suffix, "xtables-legacy-multi"))
		}
	}
	loaded := map[string]bool{}
	for _, p := range slices.Concat(programs, plugins) {
		info, err := os.Lstat(filepath.Join(root, p))
		if err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(filepath.Join(root, p))
			if err != nil {
				return nil, err
			}
			entries = append(entries, link(p, target))
			continue
		}
		entries = append(entries, binary(p, filepath.Join(root, p)))
		if err := loads(root, p, libraries, loaded); err != nil {
			return nil, err
		}
	}
	needed, err := libraryEntries(root, loaded)
	return append(entries, needed...), err
}

// libraryEntries are shared libraries of a root and where programs look for them.
func libraryEntries(root string, loaded map[string]bool) ([]entry, error) {
	entries := []entry{link("lib", "usr/lib"), link("lib64", "usr/lib64")}
	for _, lib := range slices.Sorted(maps.Keys(loaded)) {
		file, err := inRoot(root, lib)
		if err != nil {
			return nil, err
		}
		entries = append(entries, binary(lib, file))
	}
	return entries, nil
}

// libraryDir is where Debian keeps the shared libraries.
func libraryDir() string { return path.Join("usr/lib", triples[runtime.GOARCH]) }

// triples are the names that Debian gives its library folders.
var triples = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// loads adds the shared libraries that a program loads, and those that these
// load, and the program's loader.
func loads(root, p, libraries string, found map[string]bool) error {
	file, err := inRoot(root, p)
	if err != nil {
		return err
	}
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", p, err)
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read the libraries of %s: %w", p, err)
	}
	var paths []string
	for _, n := range names {
		paths = append(paths, path.Join(libraries, n))
	}
	loader, err := interpreter(f)
	if err != nil {
		return fmt.Errorf("read the loader of %s: %w", p, err)
	}
	if loader != "" {
		paths = append(paths, "usr"+loader) // /lib64 is a link to /usr/lib64
	}
	for _, lib := range paths {
		if !found[lib] {
			found[lib] = true
			if err := loads(root, lib, libraries, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// interpreter is the program that loads a dynamic one; "" for a static one.
func interpreter(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			raw := make([]byte, p.Filesz)
			_, err := p.ReadAt(raw, 0)
			return strings.TrimRight(string(raw), "\x00"), err
		}
	}
	return "", nil
}

// inRoot follows the links of a path as a process in that root would.
func inRoot(root, p string) (string, error) {
	for range 10 {
		file := filepath.Join(root, p)
		info, err := os.Lstat(file)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return file, err
		}
		target, err := os.Readlink(file)
		if err != nil {
			return "", err
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(p), target)
		}
		p = strings.TrimPrefix(target, "/")
	}
	return "", fmt.Errorf("links of %s lead nowhere", p)
}
