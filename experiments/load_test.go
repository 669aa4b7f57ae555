package experiments

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Every embedded scenario loads, plans trials and survives being written out.
func TestEmbeddedScenarios(t *testing.T) {
	require.Subset(t, Names(), []string{"LAN", "A", "B", "ICSOC-A", "ICSOC-B"})
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, err := Load(name)
			require.NoError(t, err)
			require.Equal(t, name, s.Name, "a scenario has the name of its file")
			require.NotEmpty(t, s.Title)
			trials, err := s.Trials("sim")
			require.NoError(t, err)
			require.NotEmpty(t, trials)
			roundTrip(t, s)
		})
	}
}

func roundTrip(t *testing.T, s Scenario) {
	t.Helper()
	text, err := s.Marshal()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "again.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	again, err := LoadFile(path)
	require.NoError(t, err)
	require.Equal(t, s, again)
	second, err := again.Marshal()
	require.NoError(t, err)
	require.Equal(t, string(text), string(second))
}

func TestLoadFileOfAUser(t *testing.T) {
	s, err := LoadFile("testdata/valid-mine.yaml")
	require.NoError(t, err)
	roundTrip(t, s)
	require.Equal(t, 1.0, s.Nodes[0].Slowness, "the default")
	require.Equal(t, []string{
		"rttMs: n1-n3 not measured, the largest measured value (7 ms) stands in",
		"rttMs: found n1-n2 5 ms and n2-n1 7 ms; a round trip takes as long from either end, so the mean is used",
		"control.window: 10s is less than four scrapes (20s): one late scrape changes a rate much",
	}, s.Warnings())
	const ms = time.Millisecond
	require.Equal(t, [][]time.Duration{{0, 6 * ms, 7 * ms}, {6 * ms, 0, 3 * ms}, {7 * ms, 3 * ms, ms / 10}}, s.rtt())
}

func TestExtends(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("base.yaml", "name: base\nextends: B\nseed: 5\napps: {dag: null, pair: {rps: [1, 2, 3]}}\n")
	s, err := LoadFile(write("mine.yaml", "name: mine\nextends: base.yaml\napps: {pair: {rps: [7]}}\n"))
	require.NoError(t, err)
	b, err := Load("B")
	require.NoError(t, err)
	require.Equal(t, "mine", s.Name)
	require.Empty(t, s.Extends, "resolved")
	require.EqualValues(t, 5, s.Seed)
	require.Equal(t, 2.0, s.RTTScale, "from B, two files below")
	require.NotContains(t, s.Apps, "dag", "null takes an entry out")
	require.Equal(t, []float64{7}, s.Apps["pair"].RPS, "lists are replaced")
	require.Equal(t, b.Apps["pair"].Placements, s.Apps["pair"].Placements, "maps are merged")
	short, err := s.Select(Selection{Short: true})
	require.NoError(t, err)
	require.Equal(t, []string{"pair"}, slices.Collect(maps.Keys(short.Apps)), "of the base's short form, without what was taken out")
	_, err = LoadFile(write("none.yaml", "name: none\nextends: base.yaml\nshort: {apps: {pair: null, shop: {rps: [1]}}}\n"))
	require.ErrorContains(t, err, "short.apps: found none of the scenario's apps, expected some of pair")
}

// A scenario B is scenario A with other round-trip times and nothing else.
func TestDoubledScenarios(t *testing.T) {
	for a, b := range map[string]string{"A": "B", "ICSOC-A": "ICSOC-B", "ablation-A": "ablation-B"} {
		sa, err := Load(a)
		require.NoError(t, err)
		sb, err := Load(b)
		require.NoError(t, err)
		require.Equal(t, 2*sa.RTTScale, sb.RTTScale)
		sb.Name, sb.Title, sb.RTTScale = sa.Name, sa.Title, sa.RTTScale
		require.Equal(t, sa, sb)
	}
}

// choices are lists that grow with every policy, application or scenario added.
var choices = regexp.MustCompile(`expected one of [^\n]*\b(lata|alpha-max|chain|LAN)\b[^\n]*`)

// Each file below testdata/invalid must give exactly the faults of its golden
// file, and each of them is an input error.
func TestInvalidScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			_, err := LoadFile(file)
			require.ErrorIs(t, err, ErrInput)
			golden := strings.TrimSuffix(file, ".yaml") + ".faults"
			got := choices.ReplaceAllString(filepath.ToSlash(err.Error())+"\n", "expected one of <what is registered>")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// twoNodes is a scenario of two nodes that are 50 ms apart, a on one calling b
// on the other without CPU work to speak of, with the control given.
func twoNodes(t *testing.T, control string) (Scenario, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "two.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`name: two
nodes: [{name: n1, cores: 4}, {name: n2, cores: 4}]
rttMs: [[0, 50], [50, 0]]
load: {schedule: open, arrivals: even}
timing: {duration: 20s}
control: `+control+`
compare: [kubeproxy]
repetitions: 1
apps:
  ping:
    rps: [10]
    placement: apart
    placements: {apart: {given: {a: [n1], b: [n2]}}}
    inline:
      name: ping
      entry: a
      components: [{name: a, replicas: 1, steps: [{call: [b]}]}, {name: b, replicas: 1, steps: [{cpuMs: 0.001}]}]
      server: {threads: 1}
`), 0o600))
	return LoadFile(path)
}

// A delay in a scenario is a round trip: 50 ms between caller and callee cost
// a request 50 ms, not 25 and not 100 (Shopify/toxiproxy#655).
func TestDelaysAreRoundTrips(t *testing.T) {
	s, err := twoNodes(t, "{}")
	require.NoError(t, err)
	e, err := s.Experiment(Selection{}, "sim")
	require.NoError(t, err)
	l := run(t, e, Options{Dir: t.TempDir()}).Results[0].LatencyMs
	require.InDelta(t, 50, l.Mean, 0.1)
	require.InDelta(t, 50, l.P99, 0.1)
}

// A rate over a window needs two scrapes in it, and a controller that steps
// more often than its window sees the same requests again: rate[1m] of a 1 m
// scrape is nothing (prometheus/prometheus#8001, #3194).
func TestControlRhythm(t *testing.T) {
	for control, want := range map[string]struct{ fault, warning string }{
		"{}":                                     {},
		"{period: 30s, window: 30s, scrape: 5s}": {},
		"{period: 30s}":                          {}, // the defaults: a window of 30 s, a scrape each 5 s
		"{period: 60s, window: 60s, scrape: 60s}": {"control.window: found 1m0s, expected at least two scrapes (2m0s): a rate needs two samples", ""},
		"{period: 30s, window: 9s, scrape: 5s}":   {"control.window: found 9s, expected at least two scrapes (10s)", ""},
		"{period: 30s, window: 30s, scrape: 15s}": {"", "control.window: 30s is less than four scrapes (1m0s)"},
		"{period: 15s, window: 30s, scrape: 5s}":  {"", "control.period: 15s is shorter than the window (30s)"},
	} {
		s, err := twoNodes(t, control)
		if want.fault != "" {
			require.ErrorIs(t, err, ErrInput, control)
			require.ErrorContains(t, err, want.fault, control)
			continue
		}
		require.NoError(t, err, control)
		if want.warning == "" {
			require.Empty(t, s.Warnings(), control)
		} else {
			require.Len(t, s.Warnings(), 1, control)
			require.Contains(t, s.Warnings()[0], want.warning)
		}
	}
}

func TestLoadNamesWhatThereIs(t *testing.T) {
	_, err := Load("Z")
	require.ErrorIs(t, err, ErrInput)
	require.ErrorContains(t, err, `found scenario "Z", expected one of A, B,`)
}

// Whatever bytes a file holds, loading ends with a valid scenario or with an
// input error.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/invalid/*.yaml", "scenarios/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, file := range files {
			raw, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := load(raw, "fuzz.yaml")
		if err != nil {
			require.ErrorIs(t, err, ErrInput)
			return
		}
		require.NoError(t, s.Validate())
		text, err := s.Marshal()
		require.NoError(t, err)
		again, err := load(text, "again.yaml")
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

func TestMergeDoesNotTakeAValueForAKey(t *testing.T) {
	var base, over yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte("{a: b, b: 1}"), &base))
	require.NoError(t, yaml.Unmarshal([]byte("{b: 2}"), &over))
	var got map[string]string
	require.NoError(t, merge(base.Content[0], over.Content[0]).Decode(&got))
	require.Equal(t, map[string]string{"a": "b", "b": "2"}, got)
}
