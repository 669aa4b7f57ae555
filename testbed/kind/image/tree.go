package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// layerFile is the name of a layer in the folder of its step.
const layerFile = "layer.tar"

// entry is a file, folder or symbolic link of a layer. All belong to root and
// have the same time, so that a layer's bytes follow from what is in it.
type entry struct {
	name string // from the root, without a leading slash
	mode fs.FileMode
	link string // target of a symbolic link
	text []byte // content of a file, or
	file string // where on this machine the content is
}

var epoch = time.Unix(0, 0)

func folder(name string) entry { return entry{name: name, mode: fs.ModeDir | 0o755} }
func link(name, target string) entry {
	return entry{name: name, mode: fs.ModeSymlink | 0o777, link: target}
}
func config(name, text string) entry   { return entry{name: name, mode: 0o644, text: []byte(text)} }
func binary(name, source string) entry { return entry{name: name, mode: 0o755, file: source} }

// withParents adds the folders that the entries are in, but for those that
// exist, and sorts all by name.
func withParents(entries []entry, exist map[string]bool) ([]entry, error) {
	all := map[string]entry{}
	for _, e := range entries {
		if _, twice := all[e.name]; twice {
			return nil, fmt.Errorf("%s is in the layer twice", e.name)
		}
		all[e.name] = e
	}
	for _, e := range entries {
		for dir := path.Dir(e.name); dir != "."; dir = path.Dir(dir) {
			if _, given := all[dir]; !given && !exist[dir] {
				all[dir] = folder(dir)
			}
		}
	}
	sorted := make([]entry, 0, len(all))
	for _, e := range all {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return sorted, nil
}

// writeLayer writes the entries as a layer.
func writeLayer(file string, entries []entry) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write a layer: %w", err)
	}
	w := tar.NewWriter(f)
	for _, e := range entries {
		if err := e.write(w); err != nil {
			return errors.Join(fmt.Errorf("write %s into a layer: %w", e.name, err), f.Close())
		}
	}
	return errors.Join(w.Close(), f.Close())
}

func (e entry) write(w *tar.Writer) error {
	h := &tar.Header{Name: e.name, Mode: int64(e.mode.Perm()), ModTime: epoch, Format: tar.FormatPAX}
	if e.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case e.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		return w.WriteHeader(h)
	case e.link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.link
		return w.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, int64(len(e.text))
	content := io.Reader(bytes.NewReader(e.text))
	if e.file != "" {
		f, err := os.Open(e.file)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		h.Size, content = info.Size(), f
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// entriesOf lists a folder of this machine as the entries of a layer below at.
func entriesOf(dir, at string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{name: path.Join(at, filepath.ToSlash(rel)), mode: info.Mode()}
		switch {
		case info.Mode().IsRegular():
			e.file = p
		case info.Mode()&fs.ModeSymlink != 0:
			if e.link, err = os.Readlink(p); err != nil {
				return err
			}
		case !info.IsDir():
			return nil // a socket of a program that has ended
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}

// namesIn lists what is in a layer.
func namesIn(file string) (map[string]bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names := map[string]bool{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		names[cleanName(h.Name)] = true
	}
}

// cleanName makes "./usr/bin/" and "usr/bin" one.
func cleanName(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }
