package analysis

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"heartbed/experiments"
)

// Names of the files that Read looks for in a results directory.
const (
	resultsFile  = "results.jsonl"
	scenarioFile = "scenario.yaml"
	envFile      = "env.json"
	scaleFile    = "scale.json"
	vectorsFile  = "vectors.json"
	importFile   = "import.json"
)

// Set is the results of one or several directories.
type Set struct {
	Results   []experiments.Result
	Scenarios []ScenarioInfo     // of the scenario.yaml files found, by name
	Scale     []ScalePoint       // of scale.json: scheduling time over replicas
	Vectors   map[string]float64 // of vectors.json: worked examples, computed
	Env       map[string]any     // of the first env.json: provenance
	Warnings  []string           // what a reader must know before any conclusion

	histograms map[string]string // trial ID -> path of its .hlog
}

// ScenarioInfo is what a report needs to know of a scenario.
type ScenarioInfo struct {
	Name       string                 `yaml:"name"`
	Title      string                 `yaml:"title"`
	Baseline   string                 `yaml:"baseline"`
	Compare    []string               `yaml:"compare"` // methods in the order in which they are shown
	Quick      bool                   `yaml:"quick"`   // cut down with --quick or --short
	Provenance experiments.Provenance `yaml:"provenance"`
	Methods    map[string]methodTitle `yaml:"methods"`
}

type methodTitle struct {
	Title string `yaml:"title"`
}

// Read reads the results of dir and of all directories below it (a
// reproduction writes one a scenario). The Set holds all that could be read;
// the error, which wraps experiments.ErrInput, names every file and line that could not.
func Read(dir string) (Set, error) {
	var set Set
	var faults []error
	found := 0
	walk := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		read, ok := readers[d.Name()]
		if !ok {
			return nil
		}
		if d.Name() == resultsFile || d.Name() == scaleFile {
			found++
		}
		if err := read(&set, path); err != nil {
			faults = append(faults, err)
		}
		return nil
	}
	if err := filepath.WalkDir(dir, walk); err != nil {
		return Set{}, fmt.Errorf("%w: read results: %w", experiments.ErrInput, err)
	}
	if found == 0 {
		faults = append(faults, fmt.Errorf("%s: found no %s in it or below, expected the output of a run or an import", dir, resultsFile))
	}
	set.dropRepeated()
	if len(faults) > 0 {
		return set, fmt.Errorf("%w: %w", experiments.ErrInput, errors.Join(faults...))
	}
	return set, nil
}

// readers says what is done with a file by its name.
var readers = map[string]func(*Set, string) error{
	resultsFile:  (*Set).readResults,
	scenarioFile: (*Set).readScenario,
	envFile:      (*Set).readEnv,
	scaleFile:    (*Set).readScale,
	vectorsFile:  (*Set).readVectors,
	importFile:   (*Set).readImport,
}

// Join puts the results of several sets into one. Trials with the same ID are
// the same run and are kept once.
func Join(sets ...Set) Set {
	var joined Set
	for _, s := range sets {
		joined.Results = append(joined.Results, s.Results...)
		joined.Scale = append(joined.Scale, s.Scale...)
		joined.Warnings = append(joined.Warnings, s.Warnings...)
		for _, info := range s.Scenarios {
			joined.addScenario(info)
		}
		if joined.Env == nil {
			joined.Env = s.Env
		}
		for name, v := range s.Vectors {
			joined.addVector(name, v)
		}
		for id, path := range s.histograms {
			joined.addHistogram(id, path)
		}
	}
	joined.dropRepeated()
	return joined
}

func (s *Set) readResults(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	results, err := decodeResults(f)
	s.Results = append(s.Results, results...)
	for _, r := range results {
		hlog := filepath.Join(filepath.Dir(path), "hdr", r.Trial.ID+".hlog")
		if _, statErr := os.Stat(hlog); statErr == nil {
			s.addHistogram(r.Trial.ID, hlog)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// decodeResults reads one result a line. A line that cannot be read does not
// hide the ones after it: all are named.
func decodeResults(r io.Reader) ([]experiments.Result, error) {
	var results []experiments.Result
	var faults []error
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, readErr := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			result, err := decodeResult(line)
			if err != nil && readErr == io.EOF {
				err = fmt.Errorf("%w (the last line, without a line end: the file is truncated)", err)
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("line %d: %w", number, err))
			} else {
				results = append(results, result)
			}
		}
		if readErr == io.EOF {
			return results, errors.Join(faults...)
		}
		if readErr != nil {
			return results, errors.Join(append(faults, readErr)...)
		}
	}
}

func decodeResult(line []byte) (experiments.Result, error) {
	var r experiments.Result
	dec := json.NewDecoder(bytes.NewReader(line))
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("found no whole result: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return r, errors.New("found more after the result, expected one object a line")
	}
	return r, checkResult(r)
}

// checkResult finds lines that are JSON but no result of a trial.
func checkResult(r experiments.Result) error {
	var faults []error
	for _, f := range []struct{ field, value string }{
		{"id", r.Trial.ID}, {"scenario", r.Trial.Scenario}, {"app", r.Trial.App}, {"backend", r.Trial.Backend}, {"policy", r.Trial.Policy},
	} {
		if f.value == "" {
			faults = append(faults, fmt.Errorf("trial.%s: found nothing, expected a name", f.field))
		}
	}
	if !(r.Trial.RPS > 0) || math.IsInf(r.Trial.RPS, 0) {
		faults = append(faults, fmt.Errorf("trial.rps: found %v, expected a rate above 0", r.Trial.RPS))
	}
	switch r.Verdict {
	case experiments.Valid, experiments.Saturated:
		if r.LatencyMs == nil {
			faults = append(faults, fmt.Errorf("latencyMs: found nothing, expected the latencies of a run that is %s", r.Verdict))
		}
	case experiments.Invalid:
	default:
		faults = append(faults, fmt.Errorf("verdict: found %q, expected VALID, SATURATED or INVALID", r.Verdict))
	}
	return errors.Join(faults...)
}

func (s *Set) readScenario(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var info ScenarioInfo
	if err := yaml.Unmarshal(data, &info); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	s.addScenario(info)
	return nil
}

func (s *Set) readEnv(path string) error {
	if s.Env != nil {
		return nil
	}
	return readJSON(path, &s.Env)
}

func (s *Set) readVectors(path string) error {
	var vectors map[string]float64
	if err := readJSON(path, &vectors); err != nil {
		return err
	}
	for name, v := range vectors {
		s.addVector(name, v)
	}
	return nil
}

func (s *Set) readScale(path string) error {
	var report experiments.ScaleReport
	if err := readJSON(path, &report); err != nil {
		return err
	}
	s.Scale = append(s.Scale, scalePoints(report)...)
	return nil
}

func (s *Set) readImport(path string) error {
	var log ImportLog
	if err := readJSON(path, &log); err != nil {
		return err
	}
	for _, p := range log.Problems {
		s.Warnings = append(s.Warnings, "import: "+p)
	}
	return nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: found no whole JSON object: %w", path, err)
	}
	return nil
}

func (s *Set) addScenario(info ScenarioInfo) {
	known := func(i ScenarioInfo) bool { return i.Name == info.Name }
	if info.Name == "" || slices.ContainsFunc(s.Scenarios, known) {
		return
	}
	s.Scenarios = append(s.Scenarios, info)
	slices.SortFunc(s.Scenarios, func(a, b ScenarioInfo) int { return strings.Compare(a.Name, b.Name) })
}

func (s *Set) addVector(name string, v float64) {
	if s.Vectors == nil {
		s.Vectors = map[string]float64{}
	}
	s.Vectors[name] = v
}

func (s *Set) addHistogram(id, path string) {
	if s.histograms == nil {
		s.histograms = map[string]string{}
	}
	if _, ok := s.histograms[id]; !ok {
		s.histograms[id] = path
	}
}

// dropRepeated keeps the first of the results with the same trial ID: the ID
// is the hash of all that determines the outcome.
func (s *Set) dropRepeated() {
	seen := map[string]bool{}
	s.Results = slices.DeleteFunc(s.Results, func(r experiments.Result) bool {
		repeated := seen[r.Trial.ID]
		seen[r.Trial.ID] = true
		return repeated
	})
}

func (s Set) scenario(name string) ScenarioInfo {
	for _, info := range s.Scenarios {
		if info.Name == name {
			return info
		}
	}
	return ScenarioInfo{Name: name}
}
