package netns

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

// kind is what an entry of a journal stands for.
type kind string

const (
	kindRun       kind = "run"       // who runs: PID and Started
	kindFolder    kind = "folder"    // files of the run: programs, configurations, logs
	kindCPUGroup  kind = "cpu-group" // and the processes in it
	kindNamespace kind = "namespace" // and the processes and links in it
)

// entry is one line of a journal: a change to the host that is about to be
// made. Links and bridges have no entry because they live and die with their
// namespace; processes have none because they start inside a namespace, by
// which they are found whatever their number.
type entry struct {
	Kind    kind   `json:"kind"`
	Name    string `json:"name"`
	PID     int    `json:"pid,omitempty"`     // kindRun
	Started uint64 `json:"started,omitempty"` // kindRun: start time of PID in clock ticks, so that a reused number is noticed
}

const journalSuffix = ".jsonl"

// DefaultJournals is where journals are kept: below /run, which is empty after
// a boot as the namespaces are, or else in the user's cache folder.
func DefaultJournals() string {
	if info, err := os.Stat("/run"); err == nil && info.IsDir() && os.Geteuid() == 0 {
		return "/run/heartbed"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "heartbed", "journals")
}

func (o Options) journals() string {
	if o.Journals != "" {
		return o.Journals
	}
	return DefaultJournals()
}

// journal is the open journal of one run.
type journal struct {
	path string
	file *os.File
}

// openJournal creates the journal of a run; its first line says who runs.
func openJournal(dir, run string, pid int, started uint64) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create folder of journals: %w", err)
	}
	path := filepath.Join(dir, run+journalSuffix)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	j := &journal{path: path, file: f}
	if err := errors.Join(syncFolder(dir), j.add(entry{Kind: kindRun, Name: run, PID: pid, Started: started})); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return j, nil
}

// add writes the entry to the disk. Only then may the change be made.
func (j *journal) add(e entry) error {
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

// readJournal reads the entries of a journal. A line that a crash cut short
// stands for a change that was not made; only the last line can be one.
func readJournal(path string) ([]entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	var entries []entry
	scanner := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; scanner.Scan(); n++ {
		var e entry
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("journal %s line %d: %w", path, n, err)
		}
		entries = append(entries, e)
	}
	return entries, scanner.Err()
}

// leftover is a journal whose run has not been cleaned up.
type leftover struct {
	path    string
	run     string
	entries []entry
	running bool // its process is alive
}

// leftovers reads the journals of a folder in the order of their names.
func leftovers(dir string) ([]leftover, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read folder of journals: %w", err)
	}
	var found []leftover
	var errs []error
	for _, f := range files {
		run, isJournal := strings.CutSuffix(f.Name(), journalSuffix)
		if !isJournal {
			continue
		}
		l := leftover{path: filepath.Join(dir, f.Name()), run: run}
		if l.entries, err = readJournal(l.path); errors.Is(err, fs.ErrNotExist) {
			continue // cleaned up since the folder was read
		} else if err != nil {
			errs = append(errs, err)
			continue
		}
		l.running = len(l.entries) > 0 && l.entries[0].Kind == kindRun && alive(l.entries[0].PID, l.entries[0].Started)
		found = append(found, l)
	}
	return found, errors.Join(errs...)
}

// CheckClean fails if there is something of a run that ended without undoing
// it, which could skew the next. dir is the folder of the journals, empty =
// DefaultJournals().
func CheckClean(dir string) error {
	found, err := leftovers(Options{Journals: dir}.journals())
	if err != nil {
		return err
	}
	var stale []string
	for _, l := range found {
		if !l.running {
			stale = append(stale, l.run)
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
// the journals, empty = DefaultJournals().
func Down(ctx context.Context, dir string) ([]Removed, error) {
	found, err := leftovers(Options{Journals: dir}.journals())
	errs := []error{err}
	var done []Removed
	for _, l := range found {
		if l.running {
			done = append(done, Removed{Run: l.run, Running: true})
			continue
		}
		n, err := replay(ctx, l.path, l.entries)
		if err != nil {
			errs = append(errs, fmt.Errorf("run %s: %w", l.run, err))
			continue
		}
		done = append(done, Removed{Run: l.run, Changes: n})
	}
	return done, errors.Join(errs...)
}

// replay undoes the entries, latest first, and deletes the journal if nothing
// is left.
func replay(ctx context.Context, path string, entries []entry) (changes int, err error) {
	var errs []error
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].Kind == kindRun {
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
