package prom

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const asYAML = `
address: http://prometheus.monitoring:9090/prefix
window: 1m
maxAge: 45s
timeout: 500ms
maxBytes: 1000000
cpu:
  preset: cadvisor
  match: {namespace: shop}
requests:
  promql: sum by (pod, app) (increase(app_requests_total[$window]))
  labels: {replica: pod, callerComponent: app}
rtt:
  preset: blackbox
  labels: {source: job, target: node}
`

func TestConfigIsYAMLAndJSON(t *testing.T) {
	var c Config
	dec := yaml.NewDecoder(strings.NewReader(asYAML))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(&c))
	require.NoError(t, c.Validate())
	require.Equal(t, model.Duration(time.Minute), c.Window)
	require.Equal(t, c, c.WithDefaults())

	for name, codec := range map[string]struct {
		write func(any) ([]byte, error)
		read  func([]byte, any) error
	}{"yaml": {yaml.Marshal, yaml.Unmarshal}, "json": {json.Marshal, json.Unmarshal}} {
		text, err := codec.write(c)
		require.NoError(t, err)
		var back Config
		require.NoError(t, codec.read(text, &back), name)
		require.Equal(t, c, back, name)
	}
	require.Error(t, yaml.Unmarshal([]byte("window: 30"), &c), "a duration has a unit")
}

func TestDefaults(t *testing.T) {
	c := Config{Address: "https://p", CPU: Query{Preset: ours}, Requests: Query{Preset: ours}}
	require.NoError(t, c.Validate())
	c = c.WithDefaults()
	require.Equal(t, []model.Duration{DefaultWindow, DefaultWindow, DefaultTimeout}, []model.Duration{c.Window, c.MaxAge, c.Timeout})
	require.EqualValues(t, DefaultMaxBytes, c.MaxBytes)
}

// All faults are told at once.
func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"empty": {config: Config{}, want: []string{
			`address: found "", expected one such as http://prometheus.monitoring:9090`,
			"cpu.preset: found 0 of preset, counter and promql, expected exactly one; presets are cadvisor or heartbed",
			"cpu.labels.replica: found none, expected the name of a label",
			"requests.preset: found 0 of preset, counter and promql, expected exactly one; presets are heartbed or istio",
			"requests.labels.replica: found none, expected the name of a label",
		}},
		"all wrong": {
			config: Config{
				Address: "prometheus:9090", Window: -1, MaxBytes: -1, Timeout: model.Duration(time.Microsecond),
				CPU: Query{Preset: "cadvisor", Counter: "x", Labels: Labels{Source: "n", Replica: "instance"}},
				Requests: Query{
					PromQL: "increase(x[1m])", Match: map[string]string{"a": "b"},
					Labels: Labels{Replica: "my-pod", CallerReplica: "a", CallerComponent: "b"},
				},
				RTT: Query{Preset: "ping", Counter: "x", Match: map[string]string{"a-b": "c"}},
			},
			want: []string{
				`address: found "prometheus:9090", expected one such as http://prometheus.monitoring:9090`,
				"window: found -1ns, expected 1ms or more",
				"maxAge: found -1ns, expected 1ms or more",
				"timeout: found 1µs, expected 1ms or more",
				"maxBytes: found -1, expected 1 or more",
				"cpu.preset: found 2 of preset, counter and promql, expected exactly one; presets are cadvisor or heartbed",
				"cpu.match.namespace: found none, expected the namespace of the replicas: other namespaces may have pods of the same names",
				`cpu.labels.replica: found "instance", which holds an address: addresses change and are reused; relabel the target so that another label has the name`,
				`cpu.labels.source: found "n", expected none: nothing of cpu has it`,
				"requests.match: belongs to a preset; write the labels into the query",
				"requests.promql: found no $window, expected increase(...[$window]) or the like: the amount in a window",
				`requests.labels.replica: "my-pod" is no name of a label`,
				"requests.labels.callerReplica: found callerComponent, too, expected one of the two",
				`rtt.preset: found "ping", expected blackbox or heartbed`,
				"rtt.preset: found 2 of preset, counter and promql, expected exactly one; presets are blackbox or heartbed",
				`rtt.match: "a-b" is no name of a label`,
				"rtt.counter: round-trip times are no counters; use promql",
				"rtt.labels.source: found none, expected the name of a label",
				"rtt.labels.target: found none, expected the name of a label",
			},
		},
	} {
		err := c.config.Validate()
		require.Error(t, err, name)
		require.Equal(t, c.want, strings.Split(err.Error(), "\n"), name)
		_, err = New(c.config, nil)
		require.ErrorContains(t, err, c.want[0], name)
	}
}

// The queries that docs/prometheus.md shows are those that are sent.
func TestQueriesOfPresets(t *testing.T) {
	shop := map[string]string{"namespace": "shop"}
	o, err := New(Config{
		Address: "http://p", CPU: Query{Preset: "cadvisor", Match: shop}, Requests: Query{Preset: "istio", Match: shop}, RTT: Query{Preset: "blackbox"},
	}, nil)
	require.NoError(t, err)
	require.Equal(t, `container_cpu_usage_seconds_total{container!="",container!="POD",namespace="shop"}`, o.cpu.selector)
	require.Equal(t, `istio_requests_total{reporter="destination",response_code=~"[123]..",grpc_response_status=~"|0",namespace="shop"}`, o.requests.selector)
	require.Equal(t, `(probe_icmp_duration_seconds{phase="rtt"} or on (source, target) probe_duration_seconds) and on (source, target) (probe_success == 1)`+
		` and on (source, target) (timestamp(probe_success) >= time() - 30)`, o.rtt.promql)
	require.Equal(t, `x{a="with \"quotes\"",b="1"}`, "x"+braces(nil, map[string]string{"b": "1", "a": `with "quotes"`}))
}
