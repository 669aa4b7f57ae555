package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"heartbed/cmd/internal/cli"
)

// heartbed runs a command line and gives what it printed.
func heartbed(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

func TestRunReportCompare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny")
	code, stdout, stderr := heartbed(t, "run", "--file", "testdata/tiny.yaml", "--out", dir)
	require.Equal(t, cli.Done, code, stderr)
	require.Contains(t, stderr, "4 of 4 trials")
	require.Contains(t, stdout, "report: "+filepath.Join(dir, "report.html"))
	require.Regexp(t, `P99 ms +app +backend +RPS +least-request +heart *\n +tiny +pair +sim +20 +\d+ +\d+ *\n`, stdout)
	for _, name := range []string{"scenario.yaml", "env.json", "results.jsonl", "summary.json", "report.html", "report.md"} {
		require.FileExists(t, filepath.Join(dir, name))
	}

	code, _, stderr = heartbed(t, "run", "--file", "testdata/tiny.yaml", "--out", dir)
	require.Equal(t, cli.Done, code)
	require.Contains(t, stderr, "4 of 4 trials in", "nothing is run twice")
	require.Contains(t, stderr, "4 kept from before")

	before, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	code, _, stderr = heartbed(t, "report", dir)
	require.Equal(t, cli.Done, code, stderr)
	after, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after), "a report is a function of the results")

	// What scenario.yaml says can be run again and gives the same figures; a
	// quick run of it gives others.
	again, quick := filepath.Join(t.TempDir(), "again"), filepath.Join(t.TempDir(), "quick")
	code, _, stderr = heartbed(t, "run", "--file", filepath.Join(dir, "scenario.yaml"), "--out", again, "--workers", "1")
	require.Equal(t, cli.Done, code, stderr)
	code, stdout, _ = heartbed(t, "compare", dir, again)
	require.Equal(t, cli.Done, code)
	require.Equal(t, 2, strings.Count(stdout, "×1.00 ~"), stdout)
	code, _, stderr = heartbed(t, "run", "--file", "testdata/tiny.yaml", "--out", quick, "--duration", "3s", "--policy", "heart,lata", "--rps", "20,12.5", "--reps", "1")
	require.Equal(t, cli.Done, code, stderr)
	code, stdout, _ = heartbed(t, "compare", dir, quick)
	require.Equal(t, cli.Done, code)
	require.Regexp(t, `(?m)^tiny +pair +20 +heart .* ~ *$`, stdout)
	require.Regexp(t, `(?m)^only in A: tiny/pair/least-request at 20 RPS`, stdout)
	require.Regexp(t, `(?m)^only in B: tiny/pair/lata at 12.5 RPS`, stdout)
}

func TestExitCodes(t *testing.T) {
	tiny, err := os.ReadFile("testdata/tiny.yaml")
	require.NoError(t, err)
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "s.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	strict := write(string(tiny) + "thresholds: [{app: pair, method: heart, rps: 20, metric: p99Ms, max: 0.001}]\n")
	wide := write(string(tiny) + "thresholds: [{app: pair, method: heart, rps: 20, metric: p99Ms, max: 60000}]\n")
	plain := write("not a folder")
	log := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(log, "results.jsonl"), []byte("no result\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":               {[]string{"--help"}, cli.Done, ""},
		"no command":         {nil, cli.Done, ""},
		"threshold held":     {[]string{"run", "--file", wide, "--reps", "1", "--out", "DIR"}, cli.Done, ""},
		"threshold missed":   {[]string{"run", "--file", strict, "--reps", "1", "--out", "DIR"}, cli.Threshold, "expected at most 0.001"},
		"folder is a file":   {[]string{"run", "--file", wide, "--out", filepath.Join(plain, "x")}, cli.Failed, "not a directory"},
		"unknown command":    {[]string{"fly"}, cli.BadInput, `unknown command "fly"`},
		"unknown flag":       {[]string{"run", "--scenaro", "A"}, cli.BadInput, "See 'heartbed run --help'."},
		"no scenario":        {[]string{"run"}, cli.BadInput, "give either --scenario or --file"},
		"both":               {[]string{"run", "--scenario", "A", "--file", wide}, cli.BadInput, "give either --scenario or --file"},
		"unknown scenario":   {[]string{"run", "--scenario", "Z", "--out", "DIR"}, cli.BadInput, `found scenario "Z", expected one of A, B,`},
		"unknown both":       {[]string{"run", "--scenario", "Z", "--backend", "moon", "--out", "DIR"}, cli.BadInput, `found "moon", expected one of`},
		"no such file":       {[]string{"run", "--file", "none.yaml", "--out", "DIR"}, cli.BadInput, "none.yaml"},
		"unknown app":        {[]string{"run", "--file", wide, "--app", "shop", "--out", "DIR"}, cli.BadInput, `found "shop", expected one of pair`},
		"unknown policy":     {[]string{"run", "--file", wide, "--policy", "magic", "--out", "DIR"}, cli.BadInput, `found "magic", expected one of`},
		"negative rate":      {[]string{"run", "--file", wide, "--rps", "-4", "--out", "DIR"}, cli.BadInput, "found -4, expected a number above 0"},
		"NaN rate":           {[]string{"run", "--file", wide, "--rps", "NaN", "--out", "DIR"}, cli.BadInput, "found NaN"},
		"no repetition":      {[]string{"run", "--file", wide, "--reps", "0", "--out", "DIR"}, cli.BadInput, "--reps is 0"},
		"no duration":        {[]string{"run", "--file", wide, "--duration", "0s", "--out", "DIR"}, cli.BadInput, "timing.duration: found 0s"},
		"unit missing":       {[]string{"run", "--file", wide, "--duration", "60", "--out", "DIR"}, cli.BadInput, "missing unit"},
		"broken results":     {[]string{"run", "--file", wide, "--out", log}, cli.BadInput, "line 1: found"},
		"report of nothing":  {[]string{"report", t.TempDir()}, cli.BadInput, "found no results.jsonl"},
		"report of a mess":   {[]string{"report", log}, cli.BadInput, "line 1"},
		"report needs a dir": {[]string{"report"}, cli.BadInput, "accepts 1 arg(s)"},
		"compare one":        {[]string{"compare", log}, cli.BadInput, "accepts 2 arg(s)"},
		"import nothing":     {[]string{"import", "wrk2", t.TempDir(), "--out", "DIR"}, cli.BadInput, "no run could be read"},
		"import without out": {[]string{"import", "wrk2", "."}, cli.BadInput, "--out"},
		"import over":        {[]string{"import", "wrk2", ".", "--out", log}, cli.BadInput, "expected a new folder"},
		"show":               {[]string{"scenarios", "show", "B"}, cli.Done, ""},
		"show unknown":       {[]string{"scenarios", "show", "Z"}, cli.BadInput, `found scenario "Z"`},
		"bad param":          {[]string{"allocate", "--param", "filter", wide}, cli.BadInput, "expected key=value"},
		"no recording":       {[]string{"allocate", "none.yaml"}, cli.BadInput, "none.yaml"},
		"scale nothing":      {[]string{"scale", "--policy", "magic"}, cli.BadInput, "magic"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			for i, a := range c.args {
				if a == "DIR" {
					c.args[i] = dir
				}
			}
			code, _, stderr := heartbed(t, c.args...)
			require.Equal(t, c.code, code, stderr)
			require.Contains(t, stderr, c.says)
			if code == cli.BadInput {
				require.NoDirExists(t, dir, "bad input leaves nothing behind")
			}
		})
	}
}

func TestInterruptKeepsResultsAndSaysHowToGoOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := filepath.Join(t.TempDir(), "out")
	var stdout, stderr bytes.Buffer
	code := Run(ctx, []string{"run", "--file", "testdata/tiny.yaml", "--out", dir}, &stdout, &stderr)
	require.Equal(t, cli.Interrupted, code)
	require.Contains(t, stderr.String(), "interrupted after 0 of 4 trials")
	require.Contains(t, stderr.String(), "the same command goes on from there")
	require.NoFileExists(t, filepath.Join(dir, "report.html"))
	code, _, _ = heartbed(t, "run", "--file", "testdata/tiny.yaml", "--out", dir)
	require.Equal(t, cli.Done, code)
}

// Every command explains itself with an example that it accepts.
func TestEveryCommandHasHelp(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		require.NotEmpty(t, c.Short, c.CommandPath())
		require.NotEmpty(t, c.Example, c.CommandPath())
		for line := range strings.Lines(c.Example) {
			words := strings.Fields(line)
			require.Equal(t, "heartbed", words[0], c.CommandPath())
			found, _, err := c.Root().Find(words[1:])
			require.NoError(t, err, line)
			require.NotEqual(t, c.Root(), found, line)
		}
		code, stdout, _ := heartbed(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		require.Equal(t, cli.Done, code)
		require.Contains(t, stdout, "Usage:", c.CommandPath())
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand())
}

func TestLists(t *testing.T) {
	code, stdout, _ := heartbed(t, "scenarios", "list")
	require.Equal(t, cli.Done, code)
	require.Regexp(t, `(?m)^LAN +Nodes less than 1 ms apart$`, stdout)
	code, stdout, _ = heartbed(t, "policies")
	require.Equal(t, cli.Done, code)
	require.Regexp(t, `(?m)^heart `, stdout)
	require.Regexp(t, `(?m)^  filter +on `, stdout)
	code, stdout, _ = heartbed(t, "version")
	require.Equal(t, cli.Done, code)
	require.Contains(t, stdout, "heartbed commit ")
	code, stdout, _ = heartbed(t, "doctor")
	require.Equal(t, cli.Done, code)
	require.Regexp(t, `(?m)^sim +ok `, stdout)
	for _, name := range backendNames() {
		require.Regexp(t, `(?m)^`+name+` +(ok|missing) `, stdout)
	}
	require.Regexp(t, `(?m)^scale +info .*--scale [1-9]`, stdout)
	code, stdout, _ = heartbed(t, "scale", "--replicas", "10,20", "--steps", "3", "--json")
	require.Equal(t, cli.Done, code)
	require.True(t, json.Valid([]byte(stdout)))
}

func TestAllocate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "windows.yaml")
	require.NoError(t, os.WriteFile(path, []byte(`nodes: [n1, n2]
rttMs: [[0, 10], [10, 0]]
calls: [{from: d, to: e}]
replicas:
  - {name: d1, component: d, node: n1}
  - {name: e1, component: e, node: n1}
  - {name: e2, component: e, node: n2}
windows:
  - {e1: {cpuSeconds: 12, requests: 600}, e2: {cpuSeconds: 4, requests: 600}}
`), 0o600))
	code, stdout, stderr := heartbed(t, "allocate", "--policy", "heart", "--param", "filter=off", path)
	require.Equal(t, cli.Done, code, stderr)
	var got struct {
		Routes []struct {
			From, To string
			Shares   []struct {
				To    string
				Share float64
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &got))
	require.Equal(t, "e", got.Routes[0].To)
	require.InDelta(t, 0.25, got.Routes[0].Shares[0].Share, 1e-3, "n1 costs three times as much a request")
}
