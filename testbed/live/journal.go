package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kind is what an entry of a journal stands for.
type Kind string

// KindRun says who runs: PID and Started. The other kinds are a backend's.
const KindRun Kind = "run"

// Entry is one line of a journal: a change to the host that is about to be
// made.
type Entry struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	PID     int    `json:"pid,omitempty"`     // KindRun
	Started uint64 `json:"started,omitempty"` // KindRun: start time of PID in clock ticks, so that a reused number is noticed
	// Of a change in a Kubernetes cluster: how to reach it ($KUBECONFIG and the
	// context), and where in it the change is.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
}

// RemoveFunc undoes one change. What is gone already is no error.
type RemoveFunc func(context.Context, Entry) error

const journalSuffix = ".jsonl"

// Journal is the open journal of one run.
type Journal struct {
	Path string
	file *os.File
}

// OpenJournal creates the journal of a run; its first line says who runs.
func OpenJournal(dir, run string, pid int, started uint64) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create folder of journals: %w", err)
	}
	path := filepath.Join(dir, run+journalSuffix)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	j := &Journal{Path: path, file: f}
	if err := errors.Join(syncFolder(dir), j.Add(Entry{Kind: KindRun, Name: run, PID: pid, Started: started})); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return j, nil
}

// Folder is where the journal lies, absolute for one of NewRun.
func (j *Journal) Folder() string { return filepath.Dir(j.Path) }

// Close closes the journal and undoes all that it names.
func (j *Journal) Close(ctx context.Context, remove RemoveFunc) error {
	err := j.file.Close()
	entries, readErr := ReadJournal(j.Path)
	if err := errors.Join(err, readErr); err != nil {
		return err
	}
	_, err = Replay(ctx, j.Path, entries, remove)
	return err
}

// Leave closes the journal and undoes nothing.
func (j *Journal) Leave() error { return j.file.Close() }

// Add writes the entry to the disk. Only then may the change be made.
func (j *Journal) Add(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode journal: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// ReadJournal reads the entries of a journal. A line that a crash cut short
// stands for a change that was not made; only the last line can be one.
func ReadJournal(path string) ([]Entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	var entries []Entry
	scanner := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; scanner.Scan(); n++ {
		var e Entry
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("journal %s line %d: %w", path, n, err)
		}
		entries = append(entries, e)
	}
	return entries, scanner.Err()
}

// Leftover is a journal whose run has not been cleaned up.
type Leftover struct {
	Path    string
	Run     string
	Entries []Entry
	Running bool // its process is alive
}

// Leftovers reads the journals of a folder in the order of their names.
func Leftovers(dir string) ([]Leftover, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read folder of journals: %w", err)
	}
	var found []Leftover
	var errs []error
	for _, f := range files {
		run, isJournal := strings.CutSuffix(f.Name(), journalSuffix)
		if !isJournal {
			continue
		}
		l := Leftover{Path: filepath.Join(dir, f.Name()), Run: run}
		if l.Entries, err = ReadJournal(l.Path); errors.Is(err, fs.ErrNotExist) {
			continue // cleaned up since the folder was read
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		l.Running = len(l.Entries) > 0 && l.Entries[0].Kind == KindRun && alive(l.Entries[0].PID, l.Entries[0].Started)
		found = append(found, l)
	}
	return found, errors.Join(errs...)
}

// CheckClean fails if there is something of a run that ended without undoing
// it, which could skew the next. dir is the folder of the journals.
func CheckClean(dir string) error {
	found, err := Leftovers(dir)
	if err != nil {
		return err
	}
	var stale []string
	for _, l := range found {
		if !l.Running {
			stale = append(stale, l.Run)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("found what run %s left behind; remove it with 'heartbed down' or start with --clean", strings.Join(stale, ", "))
	}
	return nil
}

// Removed is what Down did with one run.
type Removed struct {
	Run     string
	Changes int  // entries of its journal that were undone
	Running bool // it is still going on and was left alone
}

// Down undoes what runs that have ended without cleaning up changed on this
// host, latest change first. It can be repeated: what is gone already is no
// error. A journal is deleted when all of it is undone. dir is the folder of
// the journals.
func Down(ctx context.Context, dir string, remove RemoveFunc) ([]Removed, error) {
	found, err := Leftovers(dir)
	errs := []error{err}
	var done []Removed
	for _, l := range found {
		if l.Running {
			done = append(done, Removed{Run: l.Run, Running: true})
			continue
		}
		n, err := Replay(ctx, l.Path, l.Entries, remove)
		if err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w", l.Run, err))
			continue
		}
		done = append(done, Removed{Run: l.Run, Changes: n})
	}
	return done, errors.Join(errs...)
}

// Replay undoes the entries, latest first, and deletes the journal if nothing
// is left.
func Replay(ctx context.Context, path string, entries []Entry, remove RemoveFunc) (changes int, err error) {
	var errs []error
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Kind == KindRun {
			continue
		}
		if err := remove(ctx, entries[i]); err != nil {
			errs = append(errs, fmt.Errorf("remove %s %s: %w", entries[i].Kind, entries[i].Name, err))
			continue
		}
		changes++
	}
	if len(errs) > 0 {
		return changes, errors.Join(errs...)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return changes, fmt.Errorf("delete journal: %w", err)
	}
	return changes, nil
}
