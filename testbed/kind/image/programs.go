package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"heartbed/internal/cachedir"
)

// Archive is a docker archive on disk.
type Archive struct {
	Name string // of the image in it; the tag follows from the content
	File string
}

// Programs writes an image of programs of this machine, ours or Debian's: they
// are in its root, with the libraries they load and a folder for temporary
// files, nothing else. The same programs give the same image under the same
// name, and are not written twice. cache "" is cachedir.Find(). The archive goes
// into a node with ctr or kind load, not through a registry: a pod that names
// the image must not have the pull policy Always.
func Programs(cache string, programs ...string) (Archive, error) {
	if cache == "" {
		dir, err := cachedir.Find()
		if err != nil {
			return Archive{}, err
		}
		cache = dir
	}
	dir := filepath.Join(cache, "programs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Archive{}, fmt.Errorf("make the cache folder: %w", err)
	}
	entries := []entry{{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777}}
	for _, p := range programs {
		entries = append(entries, binary(filepath.Base(p), p))
	}
	libraries, err := librariesOf(programs)
	if err != nil {
		return Archive{}, err
	}
	entries, err = withParents(append(entries, libraries...), nil)
	if err != nil {
		return Archive{}, err
	}
	tmp, err := os.MkdirTemp(dir, unfinished+"*")
	if err != nil {
		return Archive{}, fmt.Errorf("make an image of programs: %w", err)
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, layerFile)
	if err := writeLayer(file, entries); err != nil {
		return Archive{}, err
	}
	l, err := openLayer(file)
	if err != nil {
		return Archive{}, err
	}
	a := Archive{
		Name: Repository + "/programs:" + l.hash.Hex[:16],
		File: filepath.Join(dir, l.hash.Hex[:16]+".tar"),
	}
	if _, err := os.Stat(a.File); err == nil {
		return a, nil
	}
	img, err := makeImage(v1.Config{Env: []string{"PATH=/"}, WorkingDir: "/"}, l)
	if err != nil {
		return Archive{}, err
	}
	if err := writeArchive(a.File, map[string]Image{a.Name: img}); err != nil {
		return Archive{}, err
	}
	return a, pruneOld(dir)
}

// librariesOf are the shared libraries that programs of this machine load; none
// for static ones, as ours are.
func librariesOf(programs []string) ([]entry, error) {
	loaded := map[string]bool{}
	for _, p := range programs {
		at, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if err := loads("/", at, libraryDir(), loaded); err != nil {
			return nil, fmt.Errorf("program %s: %w", p, err)
		}
	}
	if len(loaded) == 0 {
		return nil, nil
	}
	return libraryEntries("/", loaded)
}

// keepPrograms is how many images of programs the cache keeps.
const keepPrograms = 10

// pruneOld removes the oldest archives, and what killed programs left.
func pruneOld(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	age := map[string]int64{}
	for _, n := range names {
		if info, err := os.Stat(n); err == nil {
			age[n] = info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(min(1, max(-1, age[b]-age[a]))) })
	var errs []error
	for _, n := range names[min(keepPrograms, len(names)):] {
		errs = append(errs, os.RemoveAll(n))
	}
	return errors.Join(errs...)
}
