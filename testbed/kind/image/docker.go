package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Check says whether Docker can be used. An error that wraps
// errors.ErrUnsupported names what is missing and what mends it.
func Check(ctx context.Context) error {
	if _, err := exec.LookPath("docker"); err != nil {
		return fmt.Errorf("docker is not installed (Debian: apt-get install docker.io): %w", errors.ErrUnsupported)
	}
	_, err := output(ctx, "", nil, "docker", "version", "--format", "{{.Server.Version}}")
	return dockerError(err)
}

// dockerError says what is behind a failed call of docker version.
func dockerError(err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("this user has no rights on Docker (run as root, or join its group: usermod -aG docker $USER, then log in again): %w", errors.ErrUnsupported)
	case strings.Contains(err.Error(), "Cannot connect to the Docker daemon"):
		return fmt.Errorf("the Docker daemon does not run (systemctl start docker, or dockerd): %w", errors.ErrUnsupported)
	}
	return fmt.Errorf("ask Docker for its version: %w", err)
}

// hasImage says whether Docker has the image and it was made of these inputs.
func hasImage(ctx context.Context, tag, inputs string) bool {
	got, err := output(ctx, "", nil, "docker", "image", "inspect", "--format", `{{index .Config.Labels "`+inputsLabel+`"}}`, tag)
	return err == nil && got == inputs
}

// loadImage gives Docker the image as an archive, without writing it to disk.
func loadImage(ctx context.Context, tag string, img Image) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("name an image: %w", err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(tarball.Write(ref, img, w)) }()
	err = program{stdin: r}.run(ctx, "docker", "load", "--quiet")
	return errors.Join(err, r.Close()) // closing ends the writer, too
}

// Pull makes Docker fetch kind's published node image, pinned by its digest,
// and gives its name.
func Pull(ctx context.Context) (string, error) {
	if err := Check(ctx); err != nil {
		return "", err
	}
	ref := Pinned().Published
	if err := (program{}).run(ctx, "docker", "pull", "--quiet", ref); err != nil {
		return "", fmt.Errorf("fetch kind's published image (without the internet, 'heartbed image build' makes one): %w", err)
	}
	return ref, nil
}

// nodeImage puts the node image together from its layers, lowest first.
func nodeImage(inputs string, layerFiles ...string) (Image, error) {
	var layers []v1.Layer
	for _, file := range layerFiles {
		l, err := openLayer(file)
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	return makeImage(nodeConfig(inputs), layers...)
}

func nodeConfig(inputs string) v1.Config {
	return v1.Config{
		Env:        []string{searchPath, "container=docker"}, // tells systemd where it is
		Entrypoint: []string{"/usr/local/bin/entrypoint", "/sbin/init"},
		StopSignal: "SIGRTMIN+3", // makes systemd end; SIGTERM restarts it
		Labels:     map[string]string{inputsLabel: inputs},
	}
}
