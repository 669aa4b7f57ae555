// Package image makes the images that a kind cluster runs on: the node image
// from Debian packages and Go modules alone, without a registry and without a
// Dockerfile, and an image of this project's own static programs.
//
// What goes in is pinned in versions.yaml. Each step of a build is kept in a
// cache folder under the hash of all that determines it, and appears there only
// when it is complete: an interrupted build goes on at the step it was in, and
// a second build does nothing.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"heartbed/internal/cachedir"
)

const (
	// Repository is where kubeadm must look for the images of a node
	// (ClusterConfiguration.imageRepository): they are in its store, and no
	// registry of this name is asked.
	Repository = "localhost/heartbed"
	// PodSubnet is what the nodes' pod network is made for (kind's
	// networking.podSubnet, with disableDefaultCNI).
	PodSubnet = "10.244.0.0/16"
	// inputsLabel of an image in Docker holds the hash of what it was made of.
	inputsLabel = "heartbed.inputs"
)

// names are those of node images in Docker, without their tag, which is the
// version of Kubernetes.
const names = "heartbed/node:"

// Name is the name in Docker of the node image that Build makes, unless asked
// for the newest.
func Name() string { return names + Pinned().Kubernetes }

// IsOurs says whether a node image is one that Build makes.
func IsOurs(name string) bool { return strings.HasPrefix(name, names) }

// EtcdTag is what kubeadm must be told as etcd.local.imageTag.
func EtcdTag() string { return Pinned().Etcd }

// Options say where and how to build.
type Options struct {
	Newest   bool      // the newest Kubernetes instead of the one that starts on cgroup v1
	Cache    string    // folder of finished steps; "" = cachedir.Find()
	Mirror   string    // of Debian; "" = the default of mmdebstrap
	Output   string    // file that gets the image as a docker archive, too; "" = none
	Progress io.Writer // gets lines for people; nil = nobody
}

// builder is one build under way.
type builder struct {
	Options
	versions Versions
	goTool   string // version of the Go command, which determines binaries
}

// wantFree is the space that a build from nothing takes, in bytes: 2 GB of
// modules, 2 GB of compiled packages, 2 GB in our cache and 1 GB in Docker.
const wantFree = 7 << 30

// Build makes the node image and loads it into Docker, unless it is there, and
// gives its name. From empty caches the compilers alone need 15 minutes of CPU.
func Build(ctx context.Context, o Options) (string, error) {
	if err := Check(ctx); err != nil {
		return "", err
	}
	b, unlock, err := openBuilder(ctx, o)
	if err != nil {
		return "", err
	}
	defer unlock()
	p := b.plan()
	inputs := hash(p.debian.key(), p.node.key(), p.store.key())
	name := names + b.versions.Kubernetes
	loaded := hasImage(ctx, name, inputs)
	if loaded && o.Output == "" {
		return name, nil
	}
	if err := b.run(ctx, p.steps()); err != nil {
		return "", err
	}
	img, err := nodeImage(inputs, b.at(p.debian, layerFile), b.at(p.node, layerFile), b.at(p.store, layerFile))
	if err != nil {
		return "", err
	}
	if o.Output != "" {
		if err := writeArchive(o.Output, map[string]Image{name: img}); err != nil {
			return "", err
		}
	}
	if !loaded {
		done := b.progress().start("load", 20*time.Second)
		err := loadImage(ctx, name, img)
		done(err)
		if err != nil {
			return "", err
		}
	}
	return name, prune(b.Cache, p.steps())
}

// openBuilder begins a build, once no other one is going on.
func openBuilder(ctx context.Context, o Options) (b *builder, unlock func(), err error) {
	if b, err = newBuilder(ctx, o); err != nil {
		return nil, nil, err
	}
	unlock, err = lock(ctx, b.Cache, func() { b.progress().line("another image build is going on; waiting for it to end") })
	return b, unlock, err
}

func newBuilder(ctx context.Context, o Options) (*builder, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("build a node image on %s: %w", runtime.GOOS, errors.ErrUnsupported)
	}
	if o.Cache == "" {
		dir, err := cachedir.Find()
		if err != nil {
			return nil, err
		}
		o.Cache = dir
	}
	o.Cache = filepath.Join(o.Cache, "image")
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	goTool, err := goVersion(ctx)
	v := Pinned()
	if o.Newest {
		v.Kubernetes = v.NewestKubernetes
	}
	return &builder{Options: o, versions: v, goTool: goTool}, err
}

// plan are the steps of a node image: each says what it is made of, so that
// the key of every one is known before any has run.
type plan struct {
	programs []step // static binaries from Go modules, and kind's base files
	debian   step   // the lowest layer
	store    step   // the layer of containerd's store, and what needs a Debian to be made
	node     step   // the layer between: configuration and binaries
}

func (p plan) steps() []step {
	return append(append([]step{p.debian}, p.programs...), p.store, p.node)
}

func (b *builder) plan() plan {
	var p plan
	for _, m := range b.modules() {
		p.programs = append(p.programs, b.compile(m))
	}
	p.debian = b.debianStep()
	p.store = b.storeStep(p)
	p.node = b.nodeStep(p)
	return p
}

// program is the step that makes a program.
func (p plan) program(name string) step {
	return p.programs[slices.IndexFunc(p.programs, func(s step) bool { return s.name == name })]
}

// at is where a file that a step makes is, once it is made.
func (b *builder) at(s step, file string) string { return filepath.Join(b.Cache, s.folder(), file) }
