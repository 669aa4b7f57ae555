package image

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed versions.yaml modules node *.go
var files embed.FS

// Versions are the pins of versions.yaml.
type Versions struct {
	Kubernetes       string `yaml:"kubernetes"`
	NewestKubernetes string `yaml:"newestKubernetes"`
	Etcd             string `yaml:"etcd"`
	CoreDNS          string `yaml:"coredns"`
	CNI              string `yaml:"cni"`
	Kind             string `yaml:"kind"`
	Pause            string `yaml:"pause"`
	Debian           struct {
		Suite    string   `yaml:"suite"`
		Packages []string `yaml:"packages"`
	} `yaml:"debian"`
	Published     string `yaml:"published"`
	Prometheus    string `yaml:"prometheus"`
	MetricsServer string `yaml:"metricsServer"`
}

// Pinned are the versions that this program builds.
func Pinned() Versions {
	v, err := parseVersions(embedded("versions.yaml"))
	if err != nil {
		panic(err) // the file is part of the program
	}
	return v
}

func parseVersions(raw []byte) (Versions, error) {
	var v Versions
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("read versions.yaml: %w", err)
	}
	return v, nil
}

// embedded gives a file that is part of the program.
func embedded(name string) []byte {
	raw, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return raw
}

// code is the hash of this package's source. It determines the quick steps, in
// which Go code decides what goes where, so that none is taken from the cache
// after a change of that code.
func code() string {
	names, err := fs.Glob(files, "*.go")
	if err != nil {
		panic(err)
	}
	parts := []string{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			parts = append(parts, name, string(embedded(name)))
		}
	}
	return hash(parts...)
}

// hash is a short name for a list of texts; no two lists that differ share one.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
