package heartbed

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrows says which folders of this module a folder may import. A line here
// is a decision about the architecture: see docs/architecture.md before adding
// one. "cmd/..." stands for every command.
var arrows = map[string][]string{
	"heart":                         {},
	"heart/flow":                    {},
	"heart/policy":                  {"heart", "heart/flow"},
	"heart/placement":               {"heart"},
	"tc":                            {},
	"tc/tctest":                     {"tc"},
	"activescale/scaler":            {},
	"activescale/store":             {},
	"activescale/store/storetest":   {},
	"activescale/sink":              {"activescale/store"},
	"activescale/provider":          {"activescale/store"},
	"heart/xds":                     {"heart"},
	"heart/prom":                    {"heart"},
	"heart/istio":                   {"heart"},
	"heart/istio/istiotest":         {"internal/cachedir"},
	"heart/istio/istiotest/build":   {"heart/istio/istiotest"},
	"cmd/heart":                     {"cmd/internal/cli", "heart", "heart/policy", "heart/prom", "heart/istio", "heart/xds"},
	"cmd/activescale":               {"cmd/internal/cli", "activescale/store", "activescale/sink", "activescale/provider"},
	"workloads":                     {"heart"},
	"workloads/service":             {"heart", "workloads", "workloads/push"},
	"workloads/probe":               {},
	"workloads/push":                {},
	"workloads/loadgen":             {"workloads"},
	"workloads/agent":               {"tc", "workloads/loadgen", "workloads/probe"},
	"workloads/loadgen/loadgentest": {},
	"testbed":                       {"heart", "workloads", "activescale/scaler"},
	"testbed/sim":                   {"heart", "workloads", "testbed", "activescale/scaler"},
	"testbed/live":                  {"heart", "heart/xds", "tc", "workloads", "workloads/service", "workloads/loadgen", "testbed"},
	"testbed/netns":                 {"heart", "heart/xds", "tc", "workloads/service", "testbed", "testbed/live"},
	"testbed/kube":                  {"heart/xds", "workloads/agent", "workloads/service", "testbed", "testbed/live"},
	"testbed/kind":                  {"tc", "testbed", "testbed/kind/image", "testbed/kube", "testbed/live", "workloads/agent"},
	"testbed/cluster":               {"tc", "workloads/agent", "testbed", "testbed/kube", "testbed/live"},
	"testbed/kind/image":            {"internal/cachedir"},
	"testbed/testbedtest":           {"heart", "workloads", "testbed"},
	"experiments":                   {"heart", "heart/policy", "heart/placement", "workloads", "testbed"},
	"analysis":                      {"experiments"},
	"internal/cachedir":             {},
	"internal/chart":                {},
	"cmd/internal/cli":              {},
	"cmd/heartbed":                  {"cmd/internal/cli", "heart", "heart/policy", "workloads", "testbed", "testbed/sim", "testbed/cluster", "testbed/kind", "testbed/live", "testbed/netns", "testbed/kind/image", "tc", "experiments", "analysis"},
	"cmd/workload":                  {"cmd/internal/cli", "workloads", "workloads/agent", "workloads/service", "workloads/probe", "workloads/loadgen", "workloads/loadgen/loadgentest"},
	"bench":                         {"heart", "heart/flow", "heart/policy", "heart/xds", "tc", "tc/tctest", "workloads", "workloads/service", "workloads/loadgen/loadgentest", "testbed", "testbed/sim", "testbed/netns", "experiments"},
}

// testArrows are what the tests of a folder may import besides.
var testArrows = map[string][]string{
	"heart/istio":          {"heart/istio/istiotest", "heart/xds", "testbed/testbedtest", "workloads", "workloads/service"},
	"cmd/heart":            {"heart/istio/istiotest", "internal/chart", "testbed/testbedtest"},
	"heart/policy":         {"heart/placement"},
	"activescale/sink":     {"workloads/push"},
	"activescale/store":    {"activescale/store/storetest", "testbed/testbedtest"},
	"activescale/provider": {"activescale/sink", "activescale/store/storetest", "testbed/testbedtest", "workloads/push"},
	"cmd/activescale":      {"heart/istio/istiotest", "internal/chart", "testbed/testbedtest", "workloads/push"},
	"heart/prom":           {"testbed/testbedtest", "workloads", "workloads/service", "workloads/probe"},
	"tc":                   {"testbed/testbedtest", "tc/tctest"},
	"testbed":              {"testbed/sim"},
	"testbed/sim":          {"heart/policy", "testbed/testbedtest"},
	"testbed/live":         {"testbed/testbedtest"},
	"testbed/netns":        {"testbed/testbedtest", "workloads"},
	"testbed/kind":         {"testbed/testbedtest", "workloads"},
	"testbed/kind/image":   {"testbed/testbedtest"},
	"testbed/kube":         {"testbed/testbedtest"},
	"testbed/cluster":      {"heart", "heart/istio/istiotest", "testbed/kind", "testbed/kind/image", "testbed/testbedtest", "workloads"},
	"workloads/service":    {"heart/xds", "tc", "testbed/testbedtest"},
	"experiments":          {"tc", "testbed/sim", "testbed/netns", "testbed/kind", "testbed/kind/image", "testbed/kube", "testbed/live", "testbed/testbedtest", "workloads/agent", "workloads/loadgen", "workloads/service", "internal/chart", "heart/istio", "heart/istio/istiotest", "analysis"},
	"analysis":             {"testbed/sim", "heart", "heart/policy", "workloads"},
	"cmd/heartbed":         {"tc/tctest", "testbed/testbedtest"},
	"workloads/loadgen":    {"workloads/loadgen/loadgentest"},
	"workloads/agent":      {"workloads", "workloads/loadgen/loadgentest"},
	"cmd/workload":         {"analysis", "heart", "heart/xds"},
}

const module = "heartbed"

// source is a parsed Go file.
type source struct {
	path string // from the root, with slashes
	file *ast.File
}

func (s source) folder() string { return path.Dir(s.path) }
func (s source) isTest() bool   { return strings.HasSuffix(s.path, "_test.go") }

// ours lists the folders of this module that the file imports.
func (s source) ours() []string {
	var folders []string
	for _, i := range s.file.Imports {
		if name, err := strconv.Unquote(i.Path.Value); err == nil && strings.HasPrefix(name, module+"/") {
			folders = append(folders, strings.TrimPrefix(name, module+"/"))
		}
	}
	return folders
}

// sources parses every Go file of the module. The files are read here, rather
// than listed by the go command, so that a cached test notices a change.
func sources(t *testing.T) []source {
	var all []source
	set := token.NewFileSet()
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && p != "." && (name == "testdata" || name == "out" || name[0] == '.' || name[0] == '_') {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(p) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(set, p, nil, 0)
		all = append(all, source{p, file})
		return err
	})
	require.NoError(t, err)
	return all
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, s := range sources(t) {
		if s.folder() == "." {
			continue
		}
		allowed, listed := arrows[s.folder()]
		require.Truef(t, listed, "%s: folder %s has no line in the table of arrows", s.path, s.folder())
		if s.isTest() {
			allowed = slices.Concat(allowed, testArrows[s.folder()], []string{s.folder()})
		}
		for _, to := range s.ours() {
			require.Containsf(t, allowed, to, "%s: the arrow %s -> %s is not in the table", s.path, s.folder(), to)
		}
	}
}

func TestArrowsHaveNoCycleAndNoStaleLine(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		used[s.folder()] = true
	}
	done := map[string]bool{}
	var visit func(folder string, chain []string)
	visit = func(folder string, chain []string) {
		chain = append(chain, folder)
		require.NotContainsf(t, chain[:len(chain)-1], folder, "cycle %s", strings.Join(chain, " -> "))
		require.Truef(t, used[folder], "the table names %s, which holds no Go file", folder)
		if done[folder] {
			return
		}
		for _, to := range arrows[folder] {
			visit(to, chain)
		}
		done[folder] = true
	}
	for _, folder := range slices.Sorted(maps.Keys(arrows)) {
		visit(folder, nil)
	}
}

// pureFolders read no clock and draw no unseeded number, so that the same
// observations give the same decisions and a trial repeats exactly.
var pureFolders = []string{"heart", "heart/flow", "heart/policy", "heart/placement", "workloads", "testbed/sim", "activescale/scaler"}

// clockReaders are the functions of package time that depend on the machine's
// clock.
var clockReaders = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// seeded are the names of math/rand/v2 that draw nothing from the global
// source.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}

func TestCoreReadsNoClockAndNoGlobalRandom(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || !slices.Contains(pureFolders, s.folder()) {
			continue
		}
		for _, i := range s.file.Imports {
			require.NotEqualf(t, `"math/rand"`, i.Path.Value, "%s: use math/rand/v2 with a seed", s.path)
		}
		for _, decl := range s.file.Decls {
			f, isFunc := decl.(*ast.FuncDecl)
			if isFunc && s.path == "heart/controller.go" && f.Name.Name == "Run" {
				continue // the one place of the core that waits
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				sel, _ := n.(*ast.SelectorExpr)
				if sel == nil {
					return true
				}
				pkg, _ := sel.X.(*ast.Ident)
				if pkg == nil || pkg.Obj != nil { // not a package
					return true
				}
				if pkg.Name == "time" {
					require.NotContainsf(t, clockReaders, sel.Sel.Name, "%s reads the clock", s.path)
				}
				if pkg.Name == "rand" {
					require.Containsf(t, seeded, sel.Sel.Name, "%s draws from the global source", s.path)
				}
				return true
			})
		}
	}
}

// TestCommittedFilesStandAlone keeps paths outside the repository out of it.
func TestCommittedFilesStandAlone(t *testing.T) {
	list, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	outside := []byte("../" + "shared")
	for name := range strings.SplitSeq(strings.Trim(string(list), "\x00"), "\x00") {
		content, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted and not yet committed
		}
		require.NoError(t, err)
		require.Falsef(t, bytes.Contains(content, outside), "%s mentions %s", name, outside)
	}
}
