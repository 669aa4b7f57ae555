package sink

import (
	"math"
	"testing"

	metrics "github.com/envoyproxy/go-control-plane/envoy/service/metrics/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// TestLeanLeavesOut what cannot count, but for the first family.
func TestLeanLeavesOut(t *testing.T) {
	full := named(t, web, gauge("server.live", 1, 1000), gauge("server.uptime", 2, 1000), gauge(inbound, 3, 1000), histogram(took, 1, 2, 1000),
		gauge("cluster.x.upstream_rq_active", 4, 1000), gauge(captured, 5, 1000))
	raw, err := proto.Marshal(full)
	require.NoError(t, err)
	var lean metrics.StreamMetricsMessage
	require.NoError(t, unmarshalLean(raw, &lean))
	want := proto.Clone(full).(*metrics.StreamMetricsMessage)
	want.EnvoyMetrics = append(want.EnvoyMetrics[:1:1], full.EnvoyMetrics[2], full.EnvoyMetrics[3], full.EnvoyMetrics[5])
	require.True(t, proto.Equal(want, &lean), "%v", &lean)
}

// FuzzLean: what the complete reading accepts the lean one does, with the same
// pod and the same sums.
func FuzzLean(f *testing.F) {
	for _, m := range []*metrics.StreamMetricsMessage{
		message(), named(f, web), named(f, web, gauge(inbound, 3, 1000), gauge(connections, 4, 1000), histogram(took, 3, 17, 1000), summary(took, 3, 17, 1000)),
		message(gauge("server.live", 1, 5), gauge(captured, math.Inf(1), -1), gauge(outbound, math.NaN(), 0)),
	} {
		raw, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0x00, 0x0a, 0x02, 0x0a, 0x00, 0x18, 0x07, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var full, lean metrics.StreamMetricsMessage
		if proto.Unmarshal(raw, &full) != nil {
			_ = unmarshalLean(raw, &lean) // may accept what it skips
			return
		}
		require.NoError(t, unmarshalLean(raw, &lean))
		require.True(t, proto.Equal(full.GetIdentifier(), lean.GetIdentifier()))
		c := newCounts()
		want, _ := read(&full, 0, c)
		got, _ := read(&lean, 0, c)
		require.Equal(t, want, got) // no sum is NaN: those are bad values
	})
}
