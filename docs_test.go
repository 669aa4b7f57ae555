package heartbed

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"heartbed/experiments"
)

// Every field of the scenario format stands in docs/scenarios.md.
func TestScenarioDocsNameEveryField(t *testing.T) {
	raw, err := os.ReadFile("docs/scenarios.md")
	require.NoError(t, err)
	doc := string(raw)
	fields := map[string]bool{}
	yamlFields(reflect.TypeFor[experiments.Scenario](), fields)
	require.Greater(t, len(fields), 60)
	for name := range fields {
		if !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "."+name+"`") {
			t.Errorf("docs/scenarios.md: field %q is missing", name)
		}
	}
}

// Each test that docs/faults.md names is there.
func TestFaultsNameTests(t *testing.T) {
	raw, err := os.ReadFile("docs/faults.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`([a-z/]+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(raw), -1)
	require.Greater(t, len(named), 20)
	for _, m := range named {
		files, err := filepath.Glob(m[1] + "/*_test.go")
		require.NoError(t, err)
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || strings.Contains(string(source), "func "+m[2]+"(")
		}
		require.True(t, found, m[0])
	}
}

// yamlFields collects the names of all fields below a type.
func yamlFields(t reflect.Type, into map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		yamlFields(t.Elem(), into)
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
			if name == "" || name == "-" {
				continue
			}
			into[name] = true
			yamlFields(t.Field(i).Type, into)
		}
	}
}

// copyTree copies the working tree into a temporary folder, so that a test
// may change it.
func copyTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == ".git" || path == "out" || strings.HasPrefix(d.Name(), "_")):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, path), 0o755)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), raw, 0o644)
	})
	require.NoError(t, err)
	return dir
}

// shell runs a command line in a folder and returns what it printed.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "$ %s\n%s", line, out)
	return string(out)
}

// blocks are the contents of a document's fenced blocks of a language.
func blocks(t *testing.T, path, language string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var found []string
	for _, part := range strings.Split(string(raw), "```"+language+"\n")[1:] {
		block, _, closed := strings.Cut(part, "```")
		require.True(t, closed, "%s: a block is not closed", path)
		found = append(found, block)
	}
	return found
}

// testCommand is the README's command that runs all tests, this one too.
const testCommand = "make test"

// Every command of the documents is run as it stands, in a copy of the tree.
// The README's test command is the one that is running: CI calls it.
func TestDocumentedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole experiments; run without -short")
	}
	ci, err := os.ReadFile(".ci/run")
	require.NoError(t, err)
	require.Contains(t, string(ci), "\n"+testCommand+"\n")
	dir := copyTree(t)
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	ran := 0
	for _, path := range append(documents, "README.md") {
		for _, block := range blocks(t, path, "sh") {
			for line := range strings.Lines(block) {
				line = strings.TrimSpace(line)
				if line == "" || line == testCommand {
					continue
				}
				t.Logf("%s: %s", path, line)
				shell(t, dir, line)
				ran++
			}
		}
	}
	require.Greater(t, ran, 4)
	require.FileExists(t, filepath.Join(dir, "out", "A-sim", "report.html"))
}

// The policy of docs/adding.md, put into a copy of the tree as one file and
// nothing else, is listed, passes the contract tests, runs and is reported.
func TestAPolicyIsOneFile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and tests a copy of the tree; run without -short")
	}
	dir := copyTree(t)
	source := blocks(t, "docs/adding.md", "go")[0]
	require.Less(t, strings.Count(source, "\n"), 40)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "heart", "policy", "cores.go"), []byte(source), 0o644))
	require.Contains(t, shell(t, dir, "go run ./cmd/heartbed policies"), "cores")
	require.Contains(t, shell(t, dir, "go test -v -run 'Contract|FuzzPolicies' ./heart/policy"), "cores")
	shell(t, dir, "go run ./cmd/heartbed run --scenario LAN --app pair --rps 50 --policy heart,cores --quick --out out/mine")
	report, err := os.ReadFile(filepath.Join(dir, "out", "mine", "report.md"))
	require.NoError(t, err)
	require.Contains(t, string(report), "cores")
	require.Contains(t, shell(t, dir, "go run ./cmd/heartbed run --scenario LAN --app pair --rps 50 --policy all --quick --out out/all"), "cores")
}
