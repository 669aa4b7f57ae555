package loadgen

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/workloads"
	"heartbed/workloads/loadgen/loadgentest"
)

func TestResultKeepsAllOverTheWire(t *testing.T) {
	t.Parallel()
	c := open(server(t, loadgentest.Stall{Service: time.Millisecond}).URL, 200, 0)
	c.Hiccups = true
	sent, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.NotNil(t, sent.Hiccups)
	raw, err := json.Marshal(sent)
	require.NoError(t, err)
	require.Less(t, len(raw), 20_000, "histograms are compressed")
	var got Result
	require.NoError(t, json.Unmarshal(raw, &got))
	require.True(t, sent.Latency.Equals(got.Latency))
	require.True(t, sent.Lateness.Equals(got.Lateness))
	require.True(t, sent.Hiccups.Equals(got.Hiccups))
	sent.Latency, sent.Lateness, sent.Hiccups = got.Latency, got.Lateness, got.Hiccups
	require.Equal(t, sent, got)
}

func TestConfigKeepsAllOverTheWire(t *testing.T) {
	t.Parallel()
	sent := open("http://10.0.0.1:80/", 12.5, 3)
	sent.Load.Timeout, sent.Drop, sent.Run, sent.Draws = workloads.Duration(time.Second), 7, 8, true
	sent.Load.Profile = []workloads.RatePoint{{At: 3, Factor: 2}}
	sent.Addresses = []string{"10.0.0.1:80", "10.0.0.2:80"}
	raw, err := json.Marshal(sent)
	require.NoError(t, err)
	var got Config
	require.NoError(t, json.Unmarshal(raw, &got))
	require.Equal(t, sent, got)
}

// Each connection goes to one of the addresses, drawn anew.
func TestAddressesShareConnections(t *testing.T) {
	t.Parallel()
	var addresses []string
	for range 2 {
		srv := server(t, loadgentest.Stall{Service: time.Millisecond})
		addresses = append(addresses, strings.Trim(srv.URL[len("http://"):], "/"))
	}
	c := wrk2("http://192.0.2.1:80/", 200, 2, 40) // nobody's address
	c.Addresses = addresses
	to := map[string]int{}
	d := newDialer(target{}, c)
	for range 40 {
		conn, err := d.open(t.Context(), "tcp", "192.0.2.1:80")
		require.NoError(t, err)
		to[conn.RemoteAddr().(*net.TCPAddr).String()]++
		require.NoError(t, conn.Close())
	}
	require.InDelta(t, 20, to[addresses[0]], 13, "four standard deviations of 40 draws")
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, r.Offered, r.Answered)
	c.Addresses = []string{"nowhere"}
	_, err = Run(t.Context(), c)
	require.ErrorIs(t, err, ErrConfig)
}
