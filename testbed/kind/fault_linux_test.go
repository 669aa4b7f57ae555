package kind

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"heartbed/testbed/testbedtest"
)

// While a fault lasts the node's kubelet does not answer; once it is undone it
// does, and the other node's always.
func TestFaults(t *testing.T) {
	b := liveBackend(t)
	_, err := b.Fault(t.Context(), "n9", Pause)
	require.Error(t, err)
	_, err = b.Up(t.Context(), testbedtest.Plan())
	require.NoError(t, err)
	_, err = b.Fault(t.Context(), "n9", Pause)
	require.ErrorContains(t, err, `found "n9"`)
	_, err = b.Fault(t.Context(), "n2", "flood")
	require.ErrorContains(t, err, `found "flood"`)
	for _, f := range []Fault{Pause, Partition, Kill} {
		t.Run(string(f), func(t *testing.T) {
			require.NoError(t, kubelet(b, 1))
			undo, err := b.Fault(t.Context(), "n2", f)
			require.NoError(t, err)
			require.Error(t, kubelet(b, 1))
			require.NoError(t, kubelet(b, 0))
			require.NoError(t, undo(t.Context()))
			require.Eventually(t, func() bool { return kubelet(b, 1) == nil }, time.Minute, 100*time.Millisecond)
		})
	}
}

// kubelet says why that of a worker does not answer.
func kubelet(b *Backend, worker int) error {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	response, err := client.Get("https://" + b.kept.workers[worker].addr.String() + ":10250/healthz")
	if err != nil {
		return err
	}
	return response.Body.Close() // that it knows us is not asked
}
