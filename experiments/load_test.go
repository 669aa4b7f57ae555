package experiments

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
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
		"rttMs: n2-n3 not measured, the largest measured value (9 ms) stands in",
		"control.window: 10s is less than four scrapes (20s): one late scrape changes a rate much",
	}, s.Warnings())
	const ms = time.Millisecond
	require.Equal(t, [][]time.Duration{{0, 5 * ms, 9 * ms}, {7 * ms, 0, 9 * ms}, {9 * ms, 3 * ms, ms / 10}}, s.rtt())
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
