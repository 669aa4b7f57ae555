package experiments

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Files of a result folder.
const (
	resultsFile  = "results.jsonl"
	scenarioFile = "scenario.yaml"
	envFile      = "env.json"
	hdrFolder    = "hdr"
)

// errTruncated is returned by readResults beside the complete results when the
// last line is cut off, as it is after a power failure.
var errTruncated = errors.New("last line is truncated")

// readResults reads the lines of a results.jsonl. A line that is no result is
// an error that names it.
func readResults(r io.Reader) ([]Result, error) {
	lines := bufio.NewReader(r)
	var results []Result
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				return results, fmt.Errorf("line %d: %w", n, errTruncated)
			}
			return results, nil
		}
		if err != nil {
			return results, fmt.Errorf("line %d: %w", n, err)
		}
		var result Result
		if err := json.Unmarshal(line, &result); err != nil {
			return results, fmt.Errorf("%w: line %d: found %.40q, expected a result: %w", ErrInput, n, line, err)
		}
		if result.Trial.ID == "" || !slices.Contains([]Verdict{Valid, Saturated, Invalid}, result.Verdict) {
			return results, fmt.Errorf("%w: line %d: found trial id %q with verdict %q, expected a result", ErrInput, n, result.Trial.ID, result.Verdict)
		}
		results = append(results, result)
	}
}

// store is a result folder that is being filled.
type store struct {
	dir     string
	ids     []string          // order on disk
	lines   map[string][]byte // by trial id
	results map[string]Result
	file    *os.File
}

// readStore reads what a folder holds already, without changing it. A folder
// that does not exist is empty. The warnings say what has to be run again.
func readStore(dir string) (*store, []string, error) {
	s := &store{dir: dir, lines: map[string][]byte{}, results: map[string]Result{}}
	path := filepath.Join(dir, resultsFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, nil
	} else if err != nil {
		return nil, nil, fmt.Errorf("read results so far: %w", err)
	}
	results, err := readResults(bytes.NewReader(raw))
	var warnings []string
	if errors.Is(err, errTruncated) {
		warnings = append(warnings, fmt.Sprintf("%s: %v: that trial is run again", path, err))
	} else if err != nil {
		return nil, nil, fmt.Errorf("%s: %w; move the file away to start afresh", path, err)
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	for i, r := range results {
		id := r.Trial.ID
		if _, twice := s.lines[id]; twice {
			return nil, nil, fmt.Errorf("%w: %s: line %d: trial %s is there twice; move the file away to start afresh", ErrInput, path, i+1, id)
		}
		if r.Error != "" {
			warnings = append(warnings, fmt.Sprintf("%s: line %d: %s failed (%s): it is run again", path, i+1, r.Trial.title(), r.Error))
			continue
		}
		if r.LatencyMs != nil && !exists(s.hlog(id)) {
			warnings = append(warnings, fmt.Sprintf("%s: line %d: %s has no %s: it is run again", path, i+1, r.Trial.title(), s.hlog(id)))
			continue
		}
		s.ids, s.lines[id], s.results[id] = append(s.ids, id), lines[i], r
	}
	return s, warnings, nil
}

// open makes the folder, drops what readStore refused and opens the results
// for appending.
func (s *store) open() error {
	if err := os.MkdirAll(filepath.Join(s.dir, hdrFolder), 0o755); err != nil {
		return fmt.Errorf("make result folder: %w", err)
	}
	if err := s.rewrite(s.ids); err != nil {
		return err
	}
	var err error
	if s.file, err = os.OpenFile(filepath.Join(s.dir, resultsFile), os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return fmt.Errorf("open results: %w", err)
	}
	return nil
}

// append writes one result as one line in one call and makes it durable. If it
// cannot, the results stay as they were.
func (s *store) append(r Result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode result of %s: %w", r.Trial.title(), err)
	}
	line = append(line, '\n')
	before, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	_, err = s.file.Write(line)
	if err = errors.Join(err, s.file.Sync()); err != nil {
		// A full disk takes half a line.
		return fmt.Errorf("write result: %w", errors.Join(err, s.file.Truncate(before.Size())))
	}
	s.ids, s.lines[r.Trial.ID], s.results[r.Trial.ID] = append(s.ids, r.Trial.ID), line, r
	return nil
}

// close brings the lines into the order of the trials, so that a run that was
// interrupted and resumed leaves the same bytes as one that was not. Results
// of trials that are not in the list stay in front.
func (s *store) close(trials []Planned) error {
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("close results: %w", err)
	}
	rank := map[string]int{}
	for i, t := range trials {
		rank[t.ID] = i + 1
	}
	ordered := slices.Clone(s.ids)
	slices.SortStableFunc(ordered, func(a, b string) int { return rank[a] - rank[b] })
	if slices.Equal(ordered, s.ids) {
		return nil
	}
	return s.rewrite(ordered)
}

// rewrite replaces the results with the lines of the given trials, atomically.
func (s *store) rewrite(ids []string) error {
	var all []byte
	for _, id := range ids {
		all = append(all, s.lines[id]...)
	}
	s.ids = ids
	return writeFile(filepath.Join(s.dir, resultsFile), all)
}

// histogram writes a trial's full latency histogram (µs) in the HdrHistogram
// log format.
func (s *store) histogram(id string, h *hdrhistogram.Histogram) error {
	var b bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&b)
	err := errors.Join(w.OutputLogFormatVersion(), w.OutputComment("[latency in microseconds from the due time]"),
		w.OutputLegend(), w.OutputIntervalHistogramWithLogOptions(h, hdrhistogram.DefaultHistogramLogOptions()))
	if err != nil {
		return fmt.Errorf("encode histogram of trial %s: %w", id, err)
	}
	return writeFile(s.hlog(id), b.Bytes())
}

func (s *store) hlog(id string) string { return filepath.Join(s.dir, hdrFolder, id+".hlog") }

// writeFile replaces a file as a whole: readers see the old one or the new one.
func writeFile(path string, content []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(temp.Name()) // gone already when the rename went well
	_, err = temp.Write(content)
	err = errors.Join(err, temp.Chmod(0o644), temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
