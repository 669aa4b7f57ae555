package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"heartbed/cmd/internal/cli"
)

// activescale runs a command line and gives what it printed.
func activescale(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

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
			require.Equal(t, "activescale", words[0], c.CommandPath())
			found, rest, err := c.Root().Find(words[1:])
			require.NoError(t, err, line)
			require.NotEqual(t, c.Root(), found, line)
			fresh, _, err := rootCommand().Find(words[1:])
			require.NoError(t, err, line)
			require.NoError(t, fresh.ParseFlags(rest), line)
		}
		code, stdout, _ := activescale(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		require.Equal(t, cli.Done, code)
		require.Contains(t, stdout, "Usage:", c.CommandPath())
		require.Less(t, strings.Count(stdout, "\n"), 60, "a help is to be read")
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand())
}

func TestBadUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"service":            {[]string{"serve", "--service", "x"}, []string{`--service: found "x", expected NAMESPACE/NAME`}},
		"secret alone":       {[]string{"serve", "--certificate-secret", "x"}, []string{"without --service"}},
		"addresses":          {[]string{"serve", "--listen", "9000", "--http", "x"}, []string{`--listen: found "9000"`, `--http: found "x"`}},
		"redis":              {[]string{"serve", "--redis", "a:1,b"}, []string{`--redis: found "b", expected host:port`}},
		"redis' flags alone": {[]string{"serve", "--redis-tls"}, []string{"--redis: found none beside flags of Redis"}},
		"redis' authority":   {[]string{"serve", "--redis", "a:1", "--redis-ca", "x"}, []string{"without --redis-tls"}},
		"flush":              {[]string{"serve", "--flush", "10ms"}, []string{"--flush: found 10ms, expected 100ms to 5m"}},
		"durations":          {[]string{"serve", "--hold", "-1s", "--drain", "-1s", "--max-connection-age", "0"}, []string{"--hold: found -1s", "--drain: found -1s", "--max-connection-age: found 0s"}},
		"half a pair":        {[]string{"serve", "--sink-tls-cert", "x"}, []string{"expected both or none"}},
		"authority alone":    {[]string{"serve", "--sink-client-ca", "x"}, []string{"in plaintext nobody shows a certificate"}},
		"argument":           {[]string{"serve", "now"}, []string{`unknown command "now"`}},
		"preflight":          {[]string{"preflight", "--service", "x"}, []string{"expected NAMESPACE/NAME"}},
		"doctor of nobody":   {[]string{"doctor"}, []string{"--namespace: found none"}},
		"selector":           {[]string{"doctor", "--namespace", "x", "--selector", "=="}, []string{"--selector"}},
		"no cluster":         {[]string{"serve", "--kubeconfig", "none"}, []string{"find the cluster", "none"}},
		"no cluster either":  {[]string{"preflight", "--kubeconfig", "none"}, []string{"find the cluster"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := activescale(t, c.args...)
			require.Equal(t, cli.BadInput, code, stderr)
			for _, s := range c.says {
				require.Contains(t, stderr, s)
			}
		})
	}
}

func TestPasswordForRedis(t *testing.T) {
	t.Setenv(passwordVariable, "from the environment")
	got, err := (&settings{}).password()
	require.NoError(t, err)
	require.Equal(t, "from the environment", got)
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("from a file\n"), 0o600))
	got, err = (&settings{redisPasswordFile: file}).password()
	require.NoError(t, err)
	require.Equal(t, "from a file", got)
	_, err = (&settings{redisPasswordFile: file + "x"}).password()
	require.ErrorContains(t, err, "read Redis' password")
}

func TestSecurityToRedis(t *testing.T) {
	none, err := (&settings{}).redisSecurity()
	require.NoError(t, err)
	require.Nil(t, none)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	_, err = (&settings{redisTLS: true, redisCA: file}).redisSecurity()
	require.ErrorContains(t, err, "holds no certificate")
	_, err = (&settings{sinkCert: file, sinkKey: file}).sinkSecurity()
	require.ErrorContains(t, err, "--sink-tls-cert")
}

// Nothing that a command runs outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
