package service

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
)

func TestConfigSurvivesJSON(t *testing.T) {
	for _, name := range workloads.Names() {
		app, err := workloads.Named(name)
		require.NoError(t, err)
		want := Config{
			Replica: "r1", Component: app.Entry, Node: "n1", App: app, Listen: "127.0.0.1:1", Metrics: ":2", Slowness: 1.5,
			Connections: 3, ProxyThreads: 2, Targets: map[string]string{"x": "dns:///x:1"}, Queue: 4, Deadline: time.Second, Drain: time.Minute,
			Push: Push{To: "sink:9000", Every: time.Second, Pod: "p", Namespace: "n", IP: "10.1.2.3"},
		}
		raw, err := json.Marshal(want)
		require.NoError(t, err)
		file := filepath.Join(t.TempDir(), "r1.json")
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		got, err := ReadConfig(file)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	err := Config{Component: "z", App: chain(burns(1)), Slowness: -1, Queue: -2, Deadline: -3, Connections: -4, ProxyThreads: -6, Drain: -5, Push: Push{Every: -7}}.Validate()
	for _, want := range []string{
		"Replica: found none", "Listen: found none", `Component: found "z", expected a component of application "chain"`,
		"Slowness: found -1", "Queue: found -2", "Deadline: found -3", "Connections: found -4", "ProxyThreads: found -6", "Drain: found -5", "Push.Every: found -7",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, Config{Replica: "g", Component: "gateway", Listen: ":1", App: chain(burns(1)), Gateway: true}.Validate())
}

func TestReadConfigNamesTheFile(t *testing.T) {
	for content, want := range map[string]string{
		`{"Replica": 1}`:    "cannot unmarshal number",
		`{"Colour": "red"}`: `unknown field "Colour"`,
		`{}`:                "Replica: found none",
		`{`:                 "unexpected EOF",
	} {
		file := filepath.Join(t.TempDir(), "bad.json")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := ReadConfig(file)
		require.ErrorContains(t, err, file+": ")
		require.ErrorContains(t, err, want)
	}
	_, err := ReadConfig("absent.json")
	require.ErrorIs(t, err, os.ErrNotExist)
}
