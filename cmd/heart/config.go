package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"heartbed/heart"
	"heartbed/heart/policy"
	"heartbed/heart/prom"
)

// Config is what heart routes and how. Durations are written "30s".
type Config struct {
	Namespace string       `yaml:"namespace"` // of all components
	Calls     []heart.Call `yaml:"calls"`     // the call graph: what is routed
	// ComponentLabel is the label of a pod that names its component; "" = app.
	ComponentLabel string `yaml:"componentLabel"`
	// Services maps a component to its Service where that has another name.
	Services map[string]string `yaml:"services"`

	Policy     string            `yaml:"policy"` // "" = heart
	Params     map[string]string `yaml:"params"`
	Period     time.Duration     `yaml:"period"` // between two steps; 0 = 30 s
	MaxAge     time.Duration     `yaml:"maxAge"` // of an observation's end; 0 = twice the period
	Prometheus prom.Config       `yaml:"prometheus"`

	Router string `yaml:"router"` // istio or xds; "" = istio
	// Localities maps each node to its Istio locality; set, shares are written
	// as locality distribution.
	Localities map[string]string `yaml:"localities"`
	XDS        string            `yaml:"xds"`    // host:port at which tables are served; "" = :18000
	Listen     string            `yaml:"listen"` // host:port of /metrics, /healthz and /readyz; "" = :8080
	Lease      string            `yaml:"lease"`  // name of the Lease; "" = heart
}

// readConfig reads a Config; all faults are joined and name the file.
func readConfig(file string) (Config, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	var c Config
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func (c Config) withDefaults() Config {
	c.ComponentLabel = cmp.Or(c.ComponentLabel, "app")
	c.Policy = cmp.Or(c.Policy, "heart")
	c.Period = cmp.Or(c.Period, 30*time.Second)
	c.MaxAge = cmp.Or(c.MaxAge, 2*c.Period)
	c.Router = cmp.Or(c.Router, "istio")
	c.XDS = cmp.Or(c.XDS, ":18000")
	c.Listen = cmp.Or(c.Listen, ":8080")
	c.Lease = cmp.Or(c.Lease, "heart")
	return c
}

func (c Config) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Namespace == "" {
		fault("namespace: found none, expected one")
	}
	if len(c.Calls) == 0 {
		fault("calls: found none, expected at least one {from: a, to: b}")
	}
	for i, call := range c.Calls {
		if call.From == "" || call.To == "" {
			fault("calls[%d]: found from %q to %q, expected two components", i, call.From, call.To)
		}
	}
	if c.Period < time.Second {
		fault("period: found %v, expected 1s or more", c.Period)
	}
	if c.MaxAge < 0 {
		fault("maxAge: found %v, expected more than 0", c.MaxAge)
	}
	if c.Router != "istio" && c.Router != "xds" {
		fault("router: found %q, expected istio or xds", c.Router)
	}
	if _, err := policy.New(c.Policy, c.Params); err != nil {
		errs = append(errs, err)
	}
	if err := c.Prometheus.Validate(); err != nil {
		fault("prometheus: %w", err)
	}
	return errors.Join(errs...)
}

// components of the call graph.
func (c Config) components() map[string]bool {
	all := map[string]bool{}
	for _, call := range c.Calls {
		all[call.From], all[call.To] = true, true
	}
	return all
}

func (c Config) service(component string) string { return cmp.Or(c.Services[component], component) }
