package prom

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"heartbed/heart"
)

// probed is what a prober shows of one pair of nodes.
func probed(source, target, icmp, success string) string {
	pair := fmt.Sprintf("source=%q,target=%q", source, target)
	return fmt.Sprintf("probe_icmp_duration_seconds{%s,phase=\"resolve\"} 0.0001\nprobe_icmp_duration_seconds{%s,phase=\"rtt\"} %s\n"+
		"probe_duration_seconds{%s} 0.5\nprobe_success{%s} %s\n", pair, pair, icmp, pair, pair, success)
}

// byTCP is what the blackbox exporter shows of a probe by TCP.
func byTCP(source, target, duration string) string {
	pair := fmt.Sprintf("source=%q,target=%q", source, target)
	return fmt.Sprintf("probe_duration_seconds{%s} %s\nprobe_success{%s} 1\n", pair, duration, pair)
}

func TestRoundTripTimes(t *testing.T) {
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	const no = heart.Unmeasured
	p := prometheus(t)
	for name, c := range map[string]struct {
		preset, page string
		given, want  [][]time.Duration
		warning, err string
	}{
		"both ways": {
			preset: ours, page: probed("n1", "n2", "0.010", "1") + probed("n2", "n1", "0.012", "1"),
			want: [][]time.Duration{{0, ms(10)}, {ms(12), 0}},
		},
		"blackbox": {
			preset: "blackbox", page: probed("n1", "n2", "0.010", "1") + byTCP("n2", "n1", "0.012"),
			want: [][]time.Duration{{0, ms(10)}, {ms(12), 0}},
		},
		// prometheus/blackbox_exporter#147
		"a failed probe left a duration": {
			preset: "blackbox", page: probed("n1", "n2", "0.00025", "0") + probed("n2", "n1", "0.012", "1"),
			want: [][]time.Duration{{0, no}, {ms(12), 0}}, warning: "absent: rtt: no series: n1 to n2",
		},
		"what is not measured keeps what the caller knows": {
			preset: ours, page: probed("n1", "n1", "0.0001", "1") + probed("n1", "n2", "NaN", "1"),
			given: [][]time.Duration{{0, ms(7)}, {ms(8), 0}}, want: [][]time.Duration{{ms(0.1), ms(7)}, {ms(8), 0}},
			warning: "absent: rtt: not above zero or no finite number: n1 to n2",
		},
		"zero is no time between two nodes": {
			preset: ours, page: probed("n1", "n2", "0", "1"),
			want: [][]time.Duration{{0, no}, {no, 0}}, warning: "absent: rtt: not above zero or no finite number: n1 to n2",
		},
		"two probers of a pair": {
			preset: ours, page: probed("n1", "n2", "0.010", "1") + strings.ReplaceAll(probed("n1", "n2", "0.020", "1"), "source=", `module="other",source=`),
			want: [][]time.Duration{{0, no}, {no, 0}}, warning: `two series measure the same (module="" and "other"): n1 to n2`,
		},
		"all failed": {
			preset: ours, page: probed("n1", "n2", "0.00025", "0"),
			err: "of probe_icmp_duration_seconds, but none has the labels asked for",
		},
		"addresses for names": {
			preset: ours, page: probed("n1", "10.0.0.2", "0.010", "1"),
			err: `label target is "10.0.0.2" and the like, expected names of nodes such as "n2"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := p.exporter(t)
			e.hold(ourPage("b1", 1, nil) + c.page)
			e.wait(t, 2)
			config := p.config(t, ours, ours)
			config.RTT = Query{Preset: c.preset, Match: map[string]string{"case": t.Name()}}
			topology := pair()
			topology.RTT = c.given
			o, err := observer(t, config, topology).Observe(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, o.Topology.RTT)
			require.NoError(t, o.Topology.Validate())
			require.Contains(t, strings.Join(o.Warnings, "\n"), c.warning)
			if c.given != nil {
				require.Equal(t, ms(7), c.given[0][1], "the caller's matrix is the caller's")
			}
		})
	}
}

// A prober that is gone leaves no time behind for long.
func TestOldRoundTripTimes(t *testing.T) {
	p := prometheus(t)
	replica, prober := p.exporter(t), p.exporter(t)
	replica.hold(ourPage("b1", 1, nil))
	prober.hold(probed("n1", "n2", "0.010", "1"))
	prober.wait(t, 2)
	c := p.config(t, ours, ours)
	c.MaxAge = model.Duration(time.Second)
	c.RTT = Query{PromQL: fmt.Sprintf("probe_icmp_duration_seconds{phase=\"rtt\",case=%q}", t.Name()), Labels: Labels{Source: "source", Target: "target"}}
	require.Equal(t, 10*time.Millisecond, observe(t, c).Topology.RTT[0][1])
	c.RTT = Query{Preset: ours, Match: map[string]string{"case": t.Name()}}
	require.Equal(t, 10*time.Millisecond, observe(t, c).Topology.RTT[0][1])
	prober.play()
	require.Eventually(t, func() bool {
		_, err := observer(t, c, pair()).Observe(t.Context())
		return err != nil && strings.HasPrefix(err.Error(), "rtt: ")
	}, 10*time.Second, every)
}
