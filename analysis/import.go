package analysis

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"heartbed/experiments"
)

// BackendWrk2 names the backend of imported runs.
const BackendWrk2 = "wrk2"

// DefaultWrk2Pattern is where an imported run's policy, repetition and rate
// stand in its path; wrk2 does not print its rate.
const DefaultWrk2Pattern = "{policy}/run-{rep}/result{rps}*.txt"

// ImportOptions say how a tree of logs is read.
type ImportOptions struct {
	// Pattern of the paths below the directory, with {policy}, {rps} and
	// optionally {rep} or {run}, {phase}, {app} and {scenario}; * is any text
	// within a name. Empty = DefaultWrk2Pattern.
	Pattern  string
	Scenario string // of paths that name none; empty = "imported"
	App      string // of paths that name none; empty = "app"
	// Methods renames what the paths call a policy, as default_2 ->
	// default+lata. A policy with several phases is called policy_phase.
	Methods map[string]string
}

// Import is what was read from a tree of logs.
type Import struct {
	Results []experiments.Result
	Log     ImportLog
}

// ImportLog is import.json: how the results came from the files.
type ImportLog struct {
	Pattern string   `json:"pattern"`
	Files   int      `json:"files"` // placed by the pattern
	Runs    int      `json:"runs"`
	Methods []string `json:"methods"` // as the results name them
	// Problems names what could not be read or placed, with its file.
	Problems []string `json:"problems,omitempty"`
}

// placed is a run and where its path puts it.
type placed struct {
	path                         string
	policy, phase, app, scenario string
	rps                          float64
	rep                          int // 0 = not in the path
	run                          wrk2Run
	id                           string
}

// ImportWrk2 reads all wrk2 logs below dir. It fails when the pattern or the
// directory is unusable or nothing at all could be read; single files that
// could not are named in the log.
func ImportWrk2(dir string, o ImportOptions) (Import, error) {
	o.Pattern = cmp.Or(o.Pattern, DefaultWrk2Pattern)
	o.Scenario = cmp.Or(o.Scenario, "imported")
	o.App = cmp.Or(o.App, "app")
	pattern, err := compilePattern(o.Pattern)
	if err != nil {
		return Import{}, fmt.Errorf("%w: %w", experiments.ErrInput, err)
	}
	im := Import{Log: ImportLog{Pattern: o.Pattern}}
	var runs []placed
	var example string
	walk := func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		example = cmp.Or(example, rel)
		place, ok := placeOf(pattern, rel)
		if !ok {
			im.problem("%s: does not match the pattern, not read", rel)
			return nil
		}
		im.Log.Files++
		found, err := im.readLog(file, place)
		runs = append(runs, found...)
		return err
	}
	if err := filepath.WalkDir(dir, walk); err != nil {
		return Import{}, fmt.Errorf("%w: import wrk2 logs: %w", experiments.ErrInput, err)
	}
	if len(runs) == 0 {
		hint := "the directory holds no file"
		if example != "" {
			hint = fmt.Sprintf("found for example %s, expected paths like %s", example, o.Pattern)
		}
		return Import{}, fmt.Errorf("%w: import wrk2 logs from %s: no run could be read: %s", experiments.ErrInput, dir, hint)
	}
	im.name(runs, o)
	im.number(runs)
	for _, r := range runs {
		im.Results = append(im.Results, im.result(r))
	}
	im.Log.Runs = len(im.Results)
	return im, nil
}

func (im *Import) problem(format string, args ...any) {
	im.Log.Problems = append(im.Log.Problems, fmt.Sprintf(format, args...))
}

var (
	patternToken = regexp.MustCompile(`\{[^}]*\}|\*`)
	placeholders = map[string]string{
		"policy": `[^/]+?`, "phase": `[^/]+?`, "app": `[^/]+?`, "scenario": `[^/]+?`,
		"rep": `\d+`, "run": `\d+`, "rps": `\d+(?:\.\d+)?`,
	}
)

// compilePattern makes a path pattern a regular expression with the
// placeholders as named groups and the texts of * as groups named any.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	var faults []error
	seen := map[string]bool{}
	rest := pattern
	for at := patternToken.FindStringIndex(rest); at != nil; at = patternToken.FindStringIndex(rest) {
		b.WriteString(regexp.QuoteMeta(rest[:at[0]]))
		token := rest[at[0]:at[1]]
		rest = rest[at[1]:]
		if token == "*" {
			b.WriteString(`(?P<any>[^/]*)`)
			continue
		}
		name := strings.Trim(token, "{}")
		expr, ok := placeholders[name]
		switch {
		case !ok:
			faults = append(faults, fmt.Errorf("found %s, expected one of %v", token, slices.Sorted(maps.Keys(placeholders))))
		case seen[name]:
			faults = append(faults, fmt.Errorf("found %s twice", token))
		}
		seen[name] = true
		fmt.Fprintf(&b, "(?P<%s>%s)", name, expr)
	}
	b.WriteString(regexp.QuoteMeta(rest))
	for _, name := range []string{"policy", "rps"} {
		if !seen[name] {
			faults = append(faults, fmt.Errorf("found no {%s}, expected one", name))
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("pattern %q: %w", pattern, errors.Join(faults...))
	}
	return regexp.Compile("^" + b.String() + "$")
}

// placeOf reads a path; false = it does not match.
func placeOf(pattern *regexp.Regexp, rel string) (placed, bool) {
	m := pattern.FindStringSubmatch(rel)
	if m == nil {
		return placed{}, false
	}
	p := placed{path: rel}
	for i, name := range pattern.SubexpNames() {
		switch name {
		case "policy":
			p.policy = m[i]
		case "phase", "any":
			// What * stands for tells runs apart as a phase does.
			p.phase = strings.Trim(p.phase+m[i], "_-.")
		case "app":
			p.app = m[i]
		case "scenario":
			p.scenario = m[i]
		case "rps":
			p.rps = parseNumber(m[i])
		case "rep", "run":
			p.rep, _ = strconv.Atoi(m[i]) // digits; too many give 0, not known
		}
	}
	return p, p.rps > 0
}

// readLog reads the runs of one file.
func (im *Import) readLog(file string, place placed) ([]placed, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	runs, err := parseWrk2(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		im.problem("%s: is no wrk2 log: found no line \"Running ... test @ ...\"", place.path)
		return nil, nil
	}
	content := sha256.Sum256(data)
	out := make([]placed, len(runs))
	for i, run := range runs {
		out[i] = place
		out[i].run = run
		id := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%x", place.path, i, content))
		out[i].id = hex.EncodeToString(id[:8])
		for _, fault := range run.faults() {
			im.problem("%s:%d: %s", place.path, run.line, fault)
		}
	}
	return out, nil
}

// name settles what each run's method, application and scenario are called.
func (im *Import) name(runs []placed, o ImportOptions) {
	phases := map[string][]string{}
	for _, r := range runs {
		if !slices.Contains(phases[r.policy], r.phase) {
			phases[r.policy] = append(phases[r.policy], r.phase)
		}
	}
	methods := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		name := r.policy
		if len(phases[r.policy]) > 1 && r.phase != "" {
			name = r.policy + "_" + r.phase
		}
		r.policy = cmp.Or(o.Methods[name], name)
		r.app = cmp.Or(r.app, o.App)
		r.scenario = cmp.Or(r.scenario, o.Scenario)
		methods[r.policy] = true
	}
	im.Log.Methods = slices.SortedFunc(maps.Keys(methods), comparePolicies)
}

func (p placed) key() Key { return Key{p.scenario, p.app, BackendWrk2, p.policy, p.rps} }

// number gives the runs of a cell their repetition: that of the path, or one
// after the other where paths name none or files hold several runs.
func (im *Import) number(runs []placed) {
	slices.SortStableFunc(runs, func(a, b placed) int {
		return cmp.Or(compareKeys(a.key(), b.key()), cmp.Compare(a.rep, b.rep), strings.Compare(path.Dir(a.path), path.Dir(b.path)))
	})
	for start := 0; start < len(runs); {
		end := start + 1
		for end < len(runs) && runs[end].key() == runs[start].key() {
			end++
		}
		cell := runs[start:end]
		reps := map[int]bool{}
		for _, r := range cell {
			reps[r.rep] = true
		}
		if len(reps) != len(cell) || reps[0] {
			for i := range cell {
				cell[i].rep = i + 1
			}
		}
		start = end
	}
}

// result makes a run a result; what cannot be used is INVALID with its reason.
func (im *Import) result(p placed) experiments.Result {
	run := p.run
	r := experiments.Result{
		Trial:   experiments.Trial{ID: p.id, Scenario: p.scenario, App: p.app, Backend: BackendWrk2, Policy: p.policy, RPS: p.rps, Rep: p.rep},
		Verdict: experiments.Valid, OfferedRPS: p.rps,
	}
	r.Reasons = run.faults()
	if len(r.Reasons) > 0 {
		r.Verdict = experiments.Invalid
		return r
	}
	r.AchievedRPS = run.achieved
	r.LatencyMs = &experiments.Latency{
		Mean: run.meanMs, P50: run.percentile(50), P90: run.percentile(90), P99: run.percentile(99), P999: run.percentile(99.9), Max: run.maxMs,
	}
	orZero := func(v *float64, fallback float64) {
		if math.IsNaN(*v) { // JSON has no NaN
			*v = fallback
		}
	}
	orZero(&r.LatencyMs.P90, r.LatencyMs.P99)
	orZero(&r.LatencyMs.P999, r.LatencyMs.P99)
	orZero(&r.LatencyMs.Max, r.LatencyMs.P999)
	r.Requests = experiments.Requests{
		Offered: max(run.requests, 0), Answered: max(run.requests, 0), Failed: max(run.failed, 0) + max(run.socket-run.timeouts, 0), TimedOut: max(run.timeouts, 0),
	}
	r.Errors = r.Requests.Failed + r.Requests.TimedOut
	im.validity(p, &r)
	return r
}

// validity marks runs whose rate was not reached, or that the path misnames.
func (im *Import) validity(p placed, r *experiments.Result) {
	const reached, beyond = 0.99, 1.05
	switch ratio := r.AchievedRPS / p.rps; {
	case ratio > beyond:
		r.Verdict = experiments.Invalid
		r.Reasons = append(r.Reasons, fmt.Sprintf("achieved %.1f RPS although the path says %s", r.AchievedRPS, formatRate(p.rps)))
		im.problem("%s:%d: %s", p.path, p.run.line, r.Reasons[0])
	case ratio < reached:
		r.Verdict = experiments.Saturated
		r.Reasons = append(r.Reasons, fmt.Sprintf("achieved %.1f of %s RPS", r.AchievedRPS, formatRate(p.rps)))
	}
	if r.Errors > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d requests failed; wrk2 counts their latencies with the others", r.Errors))
	}
}

// Write puts results.jsonl and import.json into dir, which it creates.
func (im Import) Write(dir string) error {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, r := range im.Results {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("write import: %w", err)
		}
	}
	log, err := json.MarshalIndent(im.Log, "", "  ")
	if err != nil {
		return fmt.Errorf("write import: %w", err)
	}
	return writeFiles(dir, map[string][]byte{resultsFile: lines.Bytes(), importFile: append(log, '\n')})
}
