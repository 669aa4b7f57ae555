package probe

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = netip.MustParseAddr("127.0.0.1")

// listen opens a port that takes connections by itself: the kernel completes
// them.
func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]Target{
		"n2=10.0.0.2":      {Name: "n2", Addr: netip.MustParseAddr("10.0.0.2")},
		"n2=10.0.0.2:9100": {Name: "n2", Addr: netip.MustParseAddr("10.0.0.2"), Port: 9100},
		"n2=fd00::2":       {Name: "n2", Addr: netip.MustParseAddr("fd00::2")},
		"n2=[fd00::2]:80":  {Name: "n2", Addr: netip.MustParseAddr("fd00::2"), Port: 80},
	} {
		got, err := ParseTarget(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "n2", "=10.0.0.2", "n2=", "n2=host", "n2=10.0.0.2:0", "n2=10.0.0.2:x", "n2=1.2.3"} {
		_, err := ParseTarget(text)
		require.ErrorContains(t, err, "expected name=address or name=address:port", text)
	}
}

func TestICMP(t *testing.T) {
	rtt, method, err := Measure(t.Context(), Target{Name: "self", Addr: loopback}, Options{Spacing: time.Millisecond})
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("ICMP is not permitted here: %v", err)
	}
	require.NoError(t, err)
	require.Equal(t, ICMP, method)
	require.Positive(t, rtt)
	require.Less(t, rtt, time.Second)
}

func TestConnect(t *testing.T) {
	l := listen(t)
	o := Options{Count: 3, Spacing: time.Millisecond}.withDefaults()
	times, err := connect(t.Context(), Target{Addr: loopback, Port: portOf(l)}, o)
	require.NoError(t, err)
	require.Len(t, times, 3)
	for _, rtt := range times {
		require.Positive(t, rtt)
	}
	require.NoError(t, l.Close())
	times, err = connect(t.Context(), Target{Addr: loopback, Port: portOf(l)}, o)
	require.ErrorContains(t, err, "connection refused")
	require.Empty(t, times)
}

// TestNoAnswerIsAFailure probes an address of the class that nobody has.
func TestNoAnswerIsAFailure(t *testing.T) {
	rtt, _, err := Measure(t.Context(), Target{Name: "nobody", Addr: netip.MustParseAddr("240.0.0.1")}, Options{Timeout: 50 * time.Millisecond})
	require.ErrorContains(t, err, "probe nobody (240.0.0.1) by icmp: ")
	require.Zero(t, rtt)
}

func TestMedian(t *testing.T) {
	require.Equal(t, time.Duration(3), median([]time.Duration{9, 1, 3}))
	require.Equal(t, time.Duration(4), median([]time.Duration{9, 1, 5, 3}))
	require.Equal(t, time.Duration(7), median([]time.Duration{7}))
}

// TestFailureLeavesNoDuration is blackbox_exporter#147: after a failure there
// is no time, not one of zero or of the last success.
func TestFailureLeavesNoDuration(t *testing.T) {
	e := newExporter("n1")
	values := func() map[string]float64 {
		families, err := e.registry.Gather()
		require.NoError(t, err)
		return byName(families)
	}
	e.book("n2", 10*time.Millisecond, nil)
	require.Equal(t, map[string]float64{"probe_icmp_duration_seconds": 0.01, "probe_success": 1}, values())
	e.book("n2", 0, errors.New("lost"))
	require.Equal(t, map[string]float64{"probe_success": 0}, values())
	e.book("n2", 20*time.Millisecond, nil)
	require.Equal(t, map[string]float64{"probe_icmp_duration_seconds": 0.02, "probe_success": 1}, values())
}

func byName(families []*dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for _, f := range families {
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return values
}

// TestExport reads a real measurement over HTTP.
func TestExport(t *testing.T) {
	target := Target{Name: "n2", Addr: loopback, Port: portOf(listen(t))}
	l := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Export(ctx, l, Config{Source: "n1", Targets: []Target{target}, Interval: 10 * time.Millisecond,
			Options: Options{Spacing: time.Millisecond}})
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var found map[string]*dto.MetricFamily
	require.Eventually(t, func() bool {
		resp, err := client.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		found, err = parser.TextToMetricFamilies(resp.Body)
		return err == nil && len(found) == 2
	}, 5*time.Second, 10*time.Millisecond)
	m := found["probe_icmp_duration_seconds"].GetMetric()[0]
	require.Positive(t, m.GetGauge().GetValue())
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	require.Equal(t, map[string]string{"phase": "rtt", "source": "n1", "target": "n2"}, labels)
	stop()
	require.NoError(t, <-ended)
}

func FuzzParseTarget(f *testing.F) {
	f.Add("n2=10.0.0.2:80")
	f.Fuzz(func(t *testing.T, text string) {
		if target, err := ParseTarget(text); err == nil {
			require.NotEmpty(t, target.Name)
			require.True(t, target.Addr.IsValid())
		}
	})
}
