package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is an image that has not been written yet.
type Image = v1.Image

// layer is a layer in a file, as it is: it goes from one place of this machine
// to another, and compressing it would cost more time than it saves.
type layer struct {
	file string
	hash v1.Hash
	size int64
}

// openLayer reads a layer once, for its hash.
func openLayer(file string) (*layer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read a layer: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return nil, fmt.Errorf("read a layer: %w", err)
	}
	return &layer{file, v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}, size}, nil
}

func (l *layer) Digest() (v1.Hash, error)             { return l.hash, nil }
func (l *layer) DiffID() (v1.Hash, error)             { return l.hash, nil }
func (l *layer) Size() (int64, error)                 { return l.size, nil }
func (l *layer) Compressed() (io.ReadCloser, error)   { return os.Open(l.file) }
func (l *layer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.file) }
func (l *layer) MediaType() (types.MediaType, error)  { return types.DockerUncompressedLayer, nil }

// searchPath is where a program in an image finds others.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// makeImage puts layers, lowest first, and a configuration together. The same
// layers and configuration are the same image, byte for byte.
func makeImage(c v1.Config, layers ...v1.Layer) (Image, error) {
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, c
	file.Created = v1.Time{Time: epoch.UTC()}
	return mutate.ConfigFile(img, file)
}

// writeArchive writes images as one docker archive, which appears when it is
// complete.
func writeArchive(file string, images map[string]Image) (err error) {
	byRef := map[name.Reference]v1.Image{}
	for tag, img := range images {
		ref, err := name.NewTag(tag)
		if err != nil {
			return fmt.Errorf("name an image: %w", err)
		}
		byRef[ref] = img
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".archive-*")
	if err != nil {
		return fmt.Errorf("write an image archive: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write image archive %s: %w", file, err), os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(tarball.MultiRefWrite(byRef, f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
